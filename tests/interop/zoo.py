# SPDX-License-Identifier: Apache-2.0
"""Models for keras_interop.py that have, with those there, every layer of Keras's index."""

import keras

L, O, ops = keras.layers, keras.optimizers, keras.ops

# What has no model here, by its reason.
WITHOUT_A_MODEL = {
    "a base of others, which computes nothing": ["Layer", "Wrapper"],
    "Cohort refuses it, with the reason (cohort/keras/layers/builtin.cc)": [
        "FlaxLayer", "JaxLayer", "Lambda", "MaxNumBoundingBoxes", "TFSMLayer", "TorchModuleWrapper"],
    # golden/layers/{lookup,hashing,text_vectorization}.py and golden/write_text_model.py hold them
    # against it.
    "Keras computes it by TensorFlow alone": [
        "HashedCrossing", "Hashing", "IntegerLookup", "StringLookup", "TextVectorization"],
    "files call it GroupQueryAttention, which is here": ["GroupedQueryAttention"],
}


def without_a_model():
    return {name: reason for reason, names in WITHOUT_A_MODEL.items() for name in names}


# Of these, files and predictions alone are compared: their layers draw while training, or assign to the
# kernel that they train (SpectralNormalization), which Keras keeps by TensorFlow and forgets by JAX.
# Opened as a folder, not as an archive.
IN_FOLDERS = {"films"}
UNTRAINED = {"augmented", "mixed_images", "noisy", "spectral"}


def compiled(model, optimizer=None, loss="mse"):
    model.compile(optimizer or O.SGD(0.01, momentum=0.9), loss)
    return model


def chain(shape, *layers, dtype="float32", **options):
    return compiled(keras.Sequential([keras.Input(shape, dtype=dtype), *layers]), **options)


def series():
    return chain(
        (12, 3), L.ZeroPadding1D(1), L.Conv1DTranspose(4, 3, strides=2), L.DepthwiseConv1D(3),
        L.SeparableConv1D(5, 3, padding="same", activation="relu"), L.MaxPooling1D(2), L.UpSampling1D(2),
        L.AveragePooling1D(2), L.Cropping1D(1), L.SpatialDropout1D(0.0), L.AdaptiveAveragePooling1D(6),
        L.AdaptiveMaxPooling1D(3), L.GlobalMaxPooling1D(), L.Dense(3))


def masked_series():
    return chain((5, 3), L.Masking(), L.Rescaling(0.5), L.LSTM(4, return_sequences=True), L.SimpleRNN(3))


def volumes():
    return chain(
        (4, 4, 4, 2), L.ZeroPadding3D(1), L.Conv3D(3, 2, activation="tanh"), L.UpSampling3D(2),
        L.MaxPooling3D(2), L.Conv3DTranspose(2, 2, strides=2), L.Cropping3D(1), L.AveragePooling3D(2),
        L.SpatialDropout3D(0.0), L.Dense(3))  # [b, 4, 4, 4, 3]


def pooled_volumes():
    x = keras.Input((4, 4, 4, 2))
    parts = [L.GlobalAveragePooling3D()(x), L.GlobalMaxPooling3D()(x),
             L.Flatten()(L.AdaptiveAveragePooling3D(2)(x)), L.Flatten()(L.AdaptiveMaxPooling3D(2)(x))]
    return compiled(keras.Model(x, L.Dense(3)(L.Concatenate()(parts))))


def pooled_images():
    x = keras.Input((6, 5, 2))
    parts = [L.GlobalAveragePooling2D()(x), L.GlobalMaxPooling2D()(x),
             L.Flatten()(L.AdaptiveAveragePooling2D(2)(x)), L.Flatten()(L.AdaptiveMaxPooling2D(2)(x))]
    return compiled(keras.Model(x, L.Dense(3)(L.Concatenate()(parts))))


def films():
    x = keras.Input((3, 4, 4, 2))
    y = L.ConvLSTM2D(2, 3, padding="same", return_sequences=True)(x)
    lines = L.ConvLSTM1D(2, 3)(L.Reshape((3, 16, 2))(y))
    cubes = L.ConvLSTM3D(2, 2, padding="same")(L.Reshape((3, 4, 2, 2, 2))(y))
    return compiled(keras.Model(x, L.Dense(3)(L.Concatenate()([L.Flatten()(lines), L.Flatten()(cubes)]))))


def cells():
    return chain(
        (5, 4), L.Bidirectional(L.SimpleRNN(3)), L.RepeatVector(4),
        L.RNN(L.StackedRNNCells([L.SimpleRNNCell(3), L.GRUCell(4), L.LSTMCell(3)]), return_sequences=True),
        L.TimeDistributed(L.Dense(2, activation="elu")), L.RNN(L.LSTMCell(3)), optimizer=O.Adam(0.01))


def merges():
    x = keras.Input((3, 4))
    a, b = L.Dense(4, activation="tanh")(x), L.ELU()(L.Dense(4)(x))
    parts = [L.Average()([a, b]), L.Maximum()([a, b]), L.Minimum()([a, b]), L.Multiply()([a, b]),
             L.Subtract()([a, b]), L.Dot(axes=2)([a, b]), L.Identity()(a), L.UnitNormalization()(b)]
    y = L.ActivityRegularization(l2=0.01)(L.Concatenate()(parts))
    return compiled(keras.Model(x, L.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d")(y)))


def spectral():
    return chain((6, 3), L.SpectralNormalization(L.Conv1D(4, 3)), L.LeakyReLU(), L.PReLU(),
                 L.SpectralNormalization(L.Dense(3), power_iterations=2))


def additive():
    x = keras.Input((5, 4))
    y = L.AdditiveAttention()([L.Dense(4)(x), x])
    return compiled(keras.Model(x, L.Dense(3)(y)), O.Adam(0.01))


def sounds():
    x = keras.Input((200,))
    mel = L.MelSpectrogram(fft_length=32, sequence_stride=16, num_mel_bins=6, min_freq=100.0,
                           power_to_db=False)(x)
    waves = L.STFTSpectrogram(mode="magnitude", frame_length=16)(L.Reshape((200, 1))(x))
    parts = [L.GlobalAveragePooling1D()(mel), L.GlobalAveragePooling1D()(waves)]
    return compiled(keras.Model(x, L.Dense(3)(L.Concatenate()(parts))), O.SGD(0.0001))


def functions():
    """Of keras.ops: all that a file may have, but for softmax along several axes, which Keras does not read
    again with JAX."""
    x = keras.Input((16, 3))
    y = L.Dense(3)(x)
    y = ops.maximum(y, 0.1) - ops.minimum(0.25, ops.divide(x, 2)) + ops.maximum(x, y)
    y = ops.where(x > 0, y, 1) * ops.clip(x, -1, 1.5) + ops.where(ops.less_equal(x, y), 0, 1)
    y += ops.where(ops.equal(ops.cast(x, "int32"), 0), 0.5, 2) * ops.subtract(1, ops.multiply(y, 0.5))
    y -= ops.where(x >= y, ops.where(x < y + 1, 0.25, x), y)
    z = ops.reshape(ops.tanh(ops.reshape(y, (-1, 3))), (-1, 16, 3))
    y = ops.softmax(y, axis=1) + 0.1 * ops.log_softmax(z) + ops.sigmoid(ops.silu(ops.relu(y) + ops.elu(z)))
    y = ops.squeeze(ops.expand_dims(ops.sum(y, axis=()), (0, -1)), axis=(0, -1))
    y = ops.sqrt(ops.square(y) + 1) + ops.exp(-ops.softplus(z)) + ops.log(ops.square(z) + 0.5)
    y = ops.gelu(y) + ops.gelu(z, approximate=False) + ops.leaky_relu(z, 0.3)
    parts = ops.concatenate([y, ops.transpose(ops.stack([y, z], axis=1), (0, 2, 1, 3))[:, :, 0]], axis=-1)
    y = ops.max(parts, axis=1, initial=0.5) * ops.min(parts, axis=[-2], initial=-0.25)
    y += ops.mean(parts, axis=1) + ops.sum(ops.mean(z, axis=[1, 2], keepdims=True), axis=1)
    return compiled(keras.Model(x, L.Dense(3)(y)))


def features():
    x = keras.Input((3,))
    groups = L.CategoryEncoding(num_tokens=4, output_mode="multi_hot")(L.Discretization([-0.5, 0.0, 1.0])(x))
    scaled = L.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 0.5])(x)
    return compiled(keras.Model(x, L.Dense(3)(L.Concatenate()([groups, scaled]))))


def tied():
    return chain((5,), L.ReversibleEmbedding(10, 4), L.GlobalAveragePooling1D(), L.Dense(3), dtype="int32")


def noisy():
    return chain((4,), L.Dense(6), L.GaussianNoise(0.1), L.GaussianDropout(0.1), L.AlphaDropout(0.1),
                 L.Dropout(0.1), L.Dense(3))


def augmented():
    on = {"value_range": (0.0, 1.0)}
    return chain(
        (8, 8, 3), L.Resizing(9, 9), L.RandomCrop(8, 8), L.CenterCrop(7, 7), L.RandomFlip(),
        L.RandomRotation(0.1), L.RandomTranslation(0.1, 0.1), L.RandomZoom(0.1), L.RandomShear(0.1, 0.1),
        L.RandomPerspective(0.1), L.RandomElasticTransform(0.1), L.RandomBrightness(0.1, **on),
        L.RandomContrast(0.1, **on), L.RandomHue(0.1, **on), L.RandomSaturation(0.1, **on),
        L.RandomColorDegeneration(0.1, **on), L.RandomColorJitter(brightness_factor=0.1, **on),
        L.RandomGrayscale(0.1), L.RandomInvert(0.1, **on), L.RandomPosterization(4, **on),
        L.RandomSharpness(0.1, **on), L.RandomGaussianBlur(), L.RandomErasing(), L.Solarization(0.1, **on),
        L.AutoContrast(**on), L.Conv2D(2, 3), L.Flatten(), L.Dense(3))


def mixed_images():
    return chain(
        (8, 8, 3), L.MixUp(), L.CutMix(), L.RandAugment(), L.AugMix(),
        L.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2)),
        L.Pipeline([L.RandomFlip("horizontal"), L.Equalization((-4.0, 4.0)), L.Rescaling(0.5)]), L.Flatten(),
        L.Dense(3))


def models():
    """name: the model, compiled."""
    makers = (series, masked_series, volumes, pooled_volumes, pooled_images, films, cells, merges, spectral,
              additive, sounds, functions, features, tied, noisy, augmented, mixed_images)
    return {make.__name__: make() for make in makers}
