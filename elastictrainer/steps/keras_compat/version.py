"""Which Keras is installed."""

import tensorflow as tf

KERAS_3 = hasattr(tf.keras, "ops")
