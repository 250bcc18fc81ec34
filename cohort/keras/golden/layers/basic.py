# SPDX-License-Identifier: Apache-2.0
"""The layers that every model has."""

from layer_cases import L, case, keras

R, C = keras.regularizers, keras.constraints

CASES = [
    case("dense", L.Dense(3), (4, 5)),
    case("dense_relu_regularized", L.Dense(
        3, activation="relu", kernel_regularizer=R.L2(0.25), bias_regularizer=R.L1(0.5),
        kernel_constraint=C.MaxNorm(3)), (2, 3, 4)),
    case("dense_no_bias", L.Dense(2, activation="softmax", use_bias=False), (3, 4)),
    case("flatten", L.Flatten(), (2, 3, 2)),
    case("reshape", L.Reshape((3, -1)), (2, 2, 6)),
    case("activation_tanh", L.Activation("tanh"), (2, 5)),
    case("re_lu", L.ReLU(max_value=1.0, negative_slope=0.25, threshold=0.5), (4, 6)),
    case("softmax", L.Softmax(axis=1), (2, 4, 3)),
    case("dropout_inference", L.Dropout(0.5), (2, 3)),
    case("rescaling", L.Rescaling(0.5, offset=-1.0), (2, 3)),
    case("batch_normalization_training", L.BatchNormalization(), (4, 2, 3), training=True),
    case("batch_normalization_axis_1",
         L.BatchNormalization(axis=1, momentum=0.5, epsilon=0.25, center=False), (3, 2, 2, 2),
         training=True),
    case("batch_normalization_masked", L.BatchNormalization(momentum=0.5), (3, 4, 2), training=True,
         mask=[[True, True, False, False], [True, False, False, True], [True] * 4]),
    case("batch_normalization_masked_image", L.BatchNormalization(axis=1, center=False), (2, 3, 2, 2),
         training=True, mask=[[[True, False], [True, True], [False, True]], [[True, True]] * 3]),
    case("batch_normalization_masked_inference", L.BatchNormalization(), (2, 2, 3),
         mask=[[True, False], [True, True]]),
    case("batch_normalization_inference", L.BatchNormalization(scale=False), (3, 4)),
    case("batch_normalization_frozen", L.BatchNormalization(trainable=False), (3, 4),
         training=True),
]
