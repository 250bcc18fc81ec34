// SPDX-License-Identifier: Apache-2.0
//
// ResNet-18 for small images, in plain LibTorch code: nothing in here knows of Cohort.
//
//   ResNet18 net({.width = 64});
//   torch::Tensor logits = net->forward(images);   // [n, 1, 28, 28] -> [n, 10]
#pragma once

#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

struct ResNet18Options {
  std::int64_t width = 64;  ///< Channels of the first stage; the others have 2, 4 and 8 times that.
  std::int64_t channels = 1;
  std::int64_t classes = 10;
};

/// Two 3x3 convolutions beside the identity, or beside a 1x1 convolution where the shape changes.
struct BasicBlockImpl : torch::nn::Module {
  BasicBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1(convolution(in, out, 3, stride)),
        bn1(out),
        conv2(convolution(out, out, 3, 1)),
        bn2(out) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    if (stride != 1 || in != out) {
      shortcut =
          torch::nn::Sequential(convolution(in, out, 1, stride), torch::nn::BatchNorm2d(out));
      register_module("shortcut", shortcut);
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::relu(bn1(conv1(x)));
    y = bn2(conv2(y));
    return torch::relu(y + (shortcut ? shortcut->forward(x) : x));
  }

  static torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                       std::int64_t stride) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d bn2;
  torch::nn::Sequential shortcut = nullptr;
};
TORCH_MODULE(BasicBlock);

/// A 3x3 stem (as for all small images), four stages of two blocks, mean over the image, classes.
struct ResNet18Impl : torch::nn::Module {
  explicit ResNet18Impl(const ResNet18Options& options = {})
      : conv1(BasicBlockImpl::convolution(options.channels, options.width, 3, 1)),
        bn1(options.width),
        fc(8 * options.width, options.classes) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    std::int64_t in = options.width;
    for (std::int64_t stage = 0; stage < 4; ++stage) {
      const std::int64_t out = options.width << stage;
      layers->push_back(BasicBlock(in, out, stage == 0 ? 1 : 2));
      layers->push_back(BasicBlock(out, out, 1));
      in = out;
    }
    register_module("layers", layers);
    register_module("fc", fc);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::relu(bn1(conv1(x)));
    y = layers->forward(y);
    return fc(y.mean({2, 3}));
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Sequential layers;
  torch::nn::Linear fc;
};
TORCH_MODULE(ResNet18);
