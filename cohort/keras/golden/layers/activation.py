# SPDX-License-Identifier: Apache-2.0
"""Activations that are layers, and what does nothing but while training."""

from layer_cases import L, case, keras

CASES = [
    case("elu", L.ELU(0.5), (3, 4)),
    case("leaky_re_lu", L.LeakyReLU(), (3, 4)),
    case("p_re_lu", L.PReLU(alpha_regularizer=keras.regularizers.L2(0.5)), (3, 4)),
    case("p_re_lu_shared", L.PReLU(shared_axes=[1, 2]), (2, 3, 2, 2)),
    case("gaussian_noise", L.GaussianNoise(0.5, seed=3), (2, 3)),
    case("gaussian_dropout", L.GaussianDropout(0.5), (2, 3)),
    case("alpha_dropout", L.AlphaDropout(0.5, noise_shape=(None, 1)), (2, 3)),
    case("spatial_dropout1d", L.SpatialDropout1D(0.5), (2, 3, 2)),
    case("spatial_dropout2d", L.SpatialDropout2D(0.25, data_format="channels_first", seed=1),
         (2, 3, 2, 2)),
    case("spatial_dropout3d", L.SpatialDropout3D(0.5), (1, 2, 2, 2, 2)),
]

# By name, with gradients. Not "sparsemax", whose values of Keras are no projection (docs/tf_mapping.md), and
# "glu", which halves the last axis: the layer's shapes say nothing of that.
NAMES = ["celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu",
         "hard_swish", "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish", "relu",
         "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus", "softsign",
         "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh", "tanh_shrink"]
CASES += [case("by_name_" + name, L.Activation(name), (3, 6)) for name in NAMES]
