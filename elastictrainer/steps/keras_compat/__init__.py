"""Whatever differs between Keras 2 (TensorFlow 2.15) and Keras 3 (2.16 on), and Keras' private names.

No module outside asks which Keras it is, or uses a name of Keras' that begins with an underscore.
"""

# Files of models name this layer, and Keras finds it once its class is made.
from elastictrainer.steps.keras_compat.layers import InferenceMode as InferenceMode
