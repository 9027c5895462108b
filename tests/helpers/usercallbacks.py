"""Keras callbacks as users write them, for `--callback usercallbacks:NAME`."""

import tensorflow as tf

SEEN = []


class Notes(tf.keras.callbacks.Callback):
    """Notes every event with what Keras says of it."""

    def on_epoch_end(self, epoch, logs=None):
        SEEN.append(("epoch", epoch, sorted(logs)))

    def on_train_batch_end(self, batch, logs=None):
        SEEN.append(("batch", batch, sorted(logs)))

    def on_train_end(self, logs=None):
        SEEN.append(("end",))


def stops_after_an_epoch():
    def stop(epoch, logs):
        callback.model.stop_training = True

    callback = tf.keras.callbacks.LambdaCallback(on_epoch_end=stop)
    return callback


def stops_after_three_steps():
    def stop(batch, logs):
        callback.model.stop_training = batch == 2

    callback = tf.keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    return callback


def needs_more(project):
    return tf.keras.callbacks.Callback()


def none_at_all():
    return 42


def reduces_the_rate():
    return tf.keras.callbacks.ReduceLROnPlateau("loss", patience=1)


def backs_up():
    return tf.keras.callbacks.BackupAndRestore("backup")


def puts_the_best_back():
    return tf.keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
