# SPDX-License-Identifier: Apache-2.0
"""What layers make of a mask: whether it goes on, ends, or leaves steps out."""

from layer_cases import L, case

MASK = [[True, True, False], [True, False, False]]
PAIR = [MASK, [[True, True, True], [False, True, False]]]


def of(name, layer, **options):
    return case(name, layer, (2, 3, 4), mask=MASK, **options)


def of_pair(name, layer):
    return case(name, layer, [(2, 3, 4), (2, 3, 4)], mask=PAIR)


CASES = [
    of("activation", L.Activation("tanh")), of("elu", L.ELU()), of("leaky_relu", L.LeakyReLU()),
    of("prelu", L.PReLU()), of("relu", L.ReLU()),
    of("dense", L.Dense(2)), of("einsum_dense", L.EinsumDense("abc,cd->abd", (None, 2))),
    of("identity", L.Identity()), of("activity", L.ActivityRegularization(l2=0.5)),
    of("batch_norm", L.BatchNormalization()), of("layer_norm", L.LayerNormalization()),
    of("group_norm", L.GroupNormalization(2)), of("rms_norm", L.RMSNormalization()),
    of("unit_norm", L.UnitNormalization()), of("dropout", L.Dropout(0.5)), of("alpha", L.AlphaDropout(0.5)),
    of("gaussian_dropout", L.GaussianDropout(0.5)), of("gaussian_noise", L.GaussianNoise(0.5)),
    of("spatial_dropout", L.SpatialDropout1D(0.5)),
    of("normalization", L.Normalization(mean=0.5, variance=2.0)),
    of("rescaling", L.Rescaling(0.5, offset=-1.0)),
    of("spectral", L.SpectralNormalization(L.Dense(2))),
    of("spectral_conv", L.SpectralNormalization(L.Conv1D(2, 2))),
    of("spectral_einsum", L.SpectralNormalization(L.EinsumDense("abc,cd->abd", (None, 2)))),
    of("flatten", L.Flatten()), of("reshape", L.Reshape((4, 3))), of("permute", L.Permute((2, 1))),
    of("cropping", L.Cropping1D(1)), of("padding", L.ZeroPadding1D(1)), of("upsampling", L.UpSampling1D(2)),
    of("conv", L.Conv1D(2, 2)), of("max_pooling", L.MaxPooling1D(2)), of("average_pooling", L.AveragePooling1D(2)),
    of("global_average", L.GlobalAveragePooling1D()), of("global_average_kept", L.GlobalAveragePooling1D(keepdims=True)),
    of("global_max", L.GlobalMaxPooling1D()), of("masking", L.Masking()),
    of("time_distributed", L.TimeDistributed(L.Dense(2))),
    of("lstm", L.LSTM(2)), of("gru_sequences", L.GRU(2, return_sequences=True)),
    of("both_last", L.Bidirectional(L.SimpleRNN(2))),
    of_pair("add", L.Add()), of_pair("average", L.Average()), of_pair("subtract", L.Subtract()),
    of_pair("minimum", L.Minimum()), of_pair("concatenate", L.Concatenate()),
    of_pair("concatenate_steps", L.Concatenate(axis=1)), of_pair("dot", L.Dot(axes=2)),
]
