# SPDX-License-Identifier: Apache-2.0
"""Layers of images whose transformation is given: factors that leave nothing to draw."""

import numpy as np
from layer_cases import L, case


def image(*shape, scale=255.0):
    numbers = np.random.default_rng(sum(shape)).uniform(0, scale, shape)
    return np.round(numbers, 3).astype("float32")


PHOTO, SMALL = image(2, 5, 6, 3), image(2, 5, 6, 3, scale=1.0)
ON = {"training": True}
# Of ImageProjectiveTransform TensorFlow has the gradient of the transform that leads back, which is
# only about right; of a table it has one that is 0, and Cohort has none.
MOVED = {"training": True, "gradients": False}

CASES = [
    case("resizing", L.Resizing(3, 4), PHOTO),
    case("resizing_up", L.Resizing(7, 11, interpolation="bicubic"), PHOTO),
    case("resizing_nearest", L.Resizing(4, 9, interpolation="nearest"), PHOTO),
    case("resizing_lanczos3", L.Resizing(3, 4, interpolation="lanczos3", antialias=True), PHOTO),
    case("resizing_lanczos5", L.Resizing(8, 9, interpolation="lanczos5"), PHOTO),
    case("resizing_antialias", L.Resizing(2, 2, antialias=True), PHOTO),
    case("resizing_crop", L.Resizing(3, 3, crop_to_aspect_ratio=True), PHOTO),
    case("resizing_crop_wide", L.Resizing(2, 9, crop_to_aspect_ratio=True), PHOTO),
    case("resizing_pad", L.Resizing(8, 4, pad_to_aspect_ratio=True, fill_value=7.0), PHOTO),
    case("resizing_pad_wide", L.Resizing(4, 9, pad_to_aspect_ratio=True), PHOTO),
    case("resizing_channels_first", L.Resizing(3, 4, data_format="channels_first"),
         image(2, 3, 5, 6)),
    case("center_crop", L.CenterCrop(3, 3), PHOTO),
    case("center_crop_larger", L.CenterCrop(7, 4), PHOTO),
    case("center_crop_channels_first", L.CenterCrop(2, 4, data_format="channels_first"),
         image(2, 3, 5, 6)),
    case("aug_mix", L.AugMix(seed=3), PHOTO), case("aug_mix_small", L.AugMix((0.0, 1.0), 2, 1, 0.5, 0.4, False), SMALL),
    case("aug_mix_no_layers", L.AugMix(chain_depth=0, seed=1), PHOTO, training=True),
    case("random_crop_smaller_images", L.RandomCrop(8, 4, seed=1), PHOTO, training=True),
    case("random_flip", L.RandomFlip("horizontal", seed=1), PHOTO),
    case("random_rotation", L.RandomRotation((0.1, 0.1)), PHOTO, **MOVED),
    case("random_rotation_off", L.RandomRotation(0.1), PHOTO),
    case("random_rotation_nearest",
         L.RandomRotation((0.13, 0.13), interpolation="nearest", fill_mode="nearest"), PHOTO, **MOVED),
    case("random_rotation_constant",
         L.RandomRotation((-0.2, -0.2), fill_mode="constant", fill_value=9.0), PHOTO, **MOVED),
    case("random_rotation_wrap", L.RandomRotation((0.4, 0.4), fill_mode="wrap"), PHOTO, **MOVED),
    case("random_rotation_channels_first",
         L.RandomRotation((0.1, 0.1), data_format="channels_first"), image(2, 3, 5, 6), **MOVED),
    case("random_translation", L.RandomTranslation((0.3, 0.3), (-0.25, -0.25)), PHOTO, **MOVED),
    case("random_translation_far",
         L.RandomTranslation((-0.9, -0.9), (0.8, 0.8), fill_mode="wrap", interpolation="nearest"),
         PHOTO, **MOVED),
    case("random_translation_off", L.RandomTranslation(0.3, (0.1, 0.2)), PHOTO),
    case("random_zoom_in", L.RandomZoom((-0.4, -0.4)), PHOTO, **MOVED),
    case("random_zoom_out",
         L.RandomZoom((0.7, 0.7), (0.2, 0.2), fill_mode="constant", seed=3), PHOTO, **MOVED),
    case("random_shear", L.RandomShear((0.0, 0.0), (0.0, 0.0)), PHOTO, **ON),
    case("random_perspective", L.RandomPerspective(scale=0.0), PHOTO, **ON),
    case("random_perspective_off", L.RandomPerspective(0.5, scale=0.25, seed=1), PHOTO),
    case("random_elastic_transform", L.RandomElasticTransform(0.0), PHOTO, **ON),
    case("random_brightness", L.RandomBrightness((0.2, 0.2)), PHOTO, **ON),
    case("random_brightness_small", L.RandomBrightness((-0.3, -0.3), value_range=(0.0, 1.0)),
         SMALL, **ON),
    case("random_contrast", L.RandomContrast((-0.3, 0.3)), PHOTO, **ON),
    case("random_contrast_off", L.RandomContrast(0.3, seed=4), PHOTO),
    case("random_hue", L.RandomHue((1.0, 1.0)), PHOTO, **ON),
    case("random_hue_zero", L.RandomHue((0.0, 0.0), value_range=(0.0, 1.0)), SMALL, **ON),
    case("random_saturation", L.RandomSaturation((0.3, 0.3)), PHOTO, **ON),
    case("random_saturation_small", L.RandomSaturation((0.6, 0.6), value_range=(0.0, 1.0)), SMALL,
         **ON),
    case("random_color_jitter",
         L.RandomColorJitter(brightness_factor=(0.1, 0.1), contrast_factor=(-0.2, 0.2),
                             saturation_factor=(0.4, 0.4), hue_factor=(1.0, 1.0)), PHOTO, **ON),
    case("random_color_degeneration", L.RandomColorDegeneration((0.4, 0.4)), PHOTO, **ON),
    case("random_grayscale", L.RandomGrayscale(1.0), PHOTO, **ON),
    case("random_invert", L.RandomInvert((1.0, 1.0)), PHOTO, **ON),
    case("random_posterization", L.RandomPosterization((3, 3)), PHOTO, **ON),
    case("random_posterization_small", L.RandomPosterization((2, 2), value_range=(0.0, 1.0)),
         SMALL, **ON),
    case("solarization", L.Solarization(), PHOTO, **ON),
    case("random_sharpness", L.RandomSharpness((0.8, 0.8)), PHOTO, **ON),
    case("random_sharpness_smooth", L.RandomSharpness((0.1, 0.1)), PHOTO, **ON),
    case("auto_contrast", L.AutoContrast(), PHOTO),
    case("auto_contrast_small", L.AutoContrast(value_range=(0.0, 1.0)), SMALL * 0.5, **ON),
    case("equalization", L.Equalization(), PHOTO, **MOVED),
    case("equalization_bins", L.Equalization(value_range=(0.0, 1.0), bins=16), SMALL, **MOVED),
    case("clahe", L.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 3)), PHOTO,
         gradients=False),
    case("clahe_small",
         L.ContrastLimitedAdaptiveHistogramEqualization(value_range=(0.0, 1.0), clip_limit=2.0,
                                                        tile_grid_size=(1, 2)), SMALL,
         gradients=False),
    case("pipeline", L.Pipeline([L.RandomBrightness((0.2, 0.2)), L.AutoContrast()]), PHOTO, **ON),
    case("random_gaussian_blur", L.RandomGaussianBlur((1.0, 1.0), sigma=(0.7, 0.7)), PHOTO, **ON),
    case("random_gaussian_blur_large",
         L.RandomGaussianBlur((1.0, 1.0), kernel_size=(5, 3), sigma=(0.9, 0.9)), PHOTO, **ON),
    case("random_erasing_off", L.RandomErasing(0.5, fill_value=3.0, seed=2), PHOTO),
]
