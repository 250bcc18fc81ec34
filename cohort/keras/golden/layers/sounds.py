# SPDX-License-Identifier: Apache-2.0
"""Spectrograms; initial weights where the kernels themselves are to be Keras's."""

from layer_cases import L, case

# The kernels of Keras are sines of float32 angles.
INITIAL = {"weights": "initial", "tolerance": 1e-4}


def stft(name, options, shape=(2, 20, 3), **how):
    return case(f"stft_{name}", L.STFTSpectrogram(frame_length=8, **options), shape, **(INITIAL | how))


def first(name, options, **how):
    return stft(f"channels_first_{name}", {"data_format": "channels_first"} | options, (2, 3, 20),
                **({"weights": "random", "compiled": True} | how))


def mel(name, options, shape=(2, 100), **how):
    options = {"fft_length": 32, "sequence_stride": 10, "num_mel_bins": 5, "min_freq": 100.0} | options
    return case(f"mel_{name}", L.MelSpectrogram(**options), shape, **({"tolerance": 1e-4} | how))


CASES = [
    stft("log", {}), stft("magnitude", {"mode": "magnitude", "frame_step": 3}),
    stft("psd", {"mode": "psd", "fft_length": 16}), stft("real", {"mode": "real", "padding": "same"}),
    stft("imag", {"mode": "imag", "window": "hamming", "periodic": True}),
    stft("angle", {"mode": "angle", "scaling": "spectrum"}, weights="random"),
    stft("stft", {"mode": "stft", "scaling": None, "expand_dims": True}),
    stft("expanded", {"mode": "magnitude", "expand_dims": True, "window": "blackman"}),
    stft("no_window", {"mode": "magnitude", "window": None}), stft("bartlett", {"window": "bartlett"}),
    stft("random", {"mode": "stft", "padding": "same", "frame_step": 8}, weights="random"),
    first("log", {}), first("magnitude", {"mode": "magnitude", "frame_step": 3, "fft_length": 16}),
    first("psd", {"mode": "psd", "padding": "same"}),
    first("angle", {"mode": "angle", "expand_dims": True}),
    first("real", {"mode": "real", "padding": "same", "frame_step": 5}),
    first("imag", {"mode": "imag", "expand_dims": True}),
    first("stft", {"mode": "stft", "padding": "same", "expand_dims": True}),
    first("initial", {"mode": "magnitude"}, weights="initial"),
    mel("db", {}), mel("power", {"power_to_db": False}),
    mel("short", {"sequence_length": 20, "window": "hamming", "mag_exp": 1.0, "top_db": 10.0}),
    mel("range", {"sampling_rate": 8000, "min_freq": 300.0, "max_freq": 2500.0, "ref_power": 2.0}),
    mel("no_window", {"window": None, "power_to_db": False}),
]
