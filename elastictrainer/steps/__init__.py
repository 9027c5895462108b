"""One compiled training step of a Keras model."""
