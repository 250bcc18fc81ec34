// SPDX-License-Identifier: Apache-2.0
//
// The layers that a config may name.
#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/classes.h"
#include "cohort/keras/layers/layers.h"

namespace cohort::keras::internal {
namespace {

// What Keras has and Cohort cannot have.
template <class Reason>
struct RefusedLayer : LayerBase {
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
  static std::shared_ptr<RefusedLayer> from_config(const Config&) {
    throw Unimplemented(str_cat("[from_config] this layer cannot be made here: ", Reason::kText));
  }
};

struct ForDerivedClasses {
  static constexpr auto kText = "it is what others derive of, and computes nothing";
};
struct NeedsPython {
  static constexpr auto kText =
      "it calls a function or module of Python (JAX, Flax, PyTorch); write it as a class that "
      "derives of LayerBase, or with torch::nn and TorchModule, and give it the weights";
};
struct NeedsTensorFlow {
  static constexpr auto kText =
      "it runs a SavedModel of TensorFlow; load the .keras file of that model";
};
struct NeedsBoundingBoxes {
  static constexpr auto kText =
      "it pads lists of bounding boxes, and boxes are tensors of the program's own here";
};

void add_refused(ClassTable& table) {
  for (const char* name : {"Layer", "Wrapper"}) {
    table.add_builtin<RefusedLayer<ForDerivedClasses>>(name);
  }
  for (const char* name : {"FlaxLayer", "JaxLayer", "Lambda", "TorchModuleWrapper"}) {
    table.add_builtin<RefusedLayer<NeedsPython>>(name);
  }
  table.add_builtin<RefusedLayer<NeedsTensorFlow>>("TFSMLayer");
  table.add_builtin<RefusedLayer<NeedsBoundingBoxes>>("MaxNumBoundingBoxes");
}

void add_sounds(ClassTable& table) {
  table.add_builtin<MelSpectrogramLayer>();
  table.add_builtin<STFTSpectrogramLayer>();
}

void add_images(ClassTable& table) {
  table.add_builtin<AugMixLayer>();
  table.add_builtin<AutoContrastLayer>();
  table.add_builtin<CenterCropLayer>();
  table.add_builtin<ContrastLimitedAdaptiveHistogramEqualizationLayer>();
  table.add_builtin<CutMixLayer>();
  table.add_builtin<EqualizationLayer>();
  table.add_builtin<MixUpLayer>();
  table.add_builtin<PipelineLayer>();
  table.add_builtin<RandAugmentLayer>();
  table.add_builtin<RandomBrightnessLayer>();
  table.add_builtin<RandomColorDegenerationLayer>();
  table.add_builtin<RandomColorJitterLayer>();
  table.add_builtin<RandomContrastLayer>();
  table.add_builtin<RandomCropLayer>();
  table.add_builtin<RandomElasticTransformLayer>();
  table.add_builtin<RandomErasingLayer>();
  table.add_builtin<RandomFlipLayer>();
  table.add_builtin<RandomGaussianBlurLayer>();
  table.add_builtin<RandomGrayscaleLayer>();
  table.add_builtin<RandomHueLayer>();
  table.add_builtin<RandomInvertLayer>();
  table.add_builtin<RandomPerspectiveLayer>();
  table.add_builtin<RandomPosterizationLayer>();
  table.add_builtin<RandomRotationLayer>();
  table.add_builtin<RandomSaturationLayer>();
  table.add_builtin<RandomSharpnessLayer>();
  table.add_builtin<RandomShearLayer>();
  table.add_builtin<RandomTranslationLayer>();
  table.add_builtin<RandomZoomLayer>();
  table.add_builtin<ResizingLayer>();
  table.add_builtin<SolarizationLayer>();
}

void add_merging(ClassTable& table) {
  table.add_builtin<AddLayer>();
  table.add_builtin<AverageLayer>();
  table.add_builtin<ConcatenateLayer>();
  table.add_builtin<DotLayer>();
  table.add_builtin<MaximumLayer>();
  table.add_builtin<MinimumLayer>();
  table.add_builtin<MultiplyLayer>();
  table.add_builtin<SubtractLayer>();
}

void add_regularization(ClassTable& table) {
  table.add_builtin<ActivityRegularizationLayer>();
  table.add_builtin<AlphaDropoutLayer>();
  table.add_builtin<ELULayer>();
  table.add_builtin<GaussianDropoutLayer>();
  table.add_builtin<GaussianNoiseLayer>();
  table.add_builtin<LeakyReLULayer>();
  table.add_builtin<PReLULayer>();
  table.add_builtin<SpatialDropout1DLayer>();
  table.add_builtin<SpatialDropout2DLayer>();
  table.add_builtin<SpatialDropout3DLayer>();
}

void add_convolutions(ClassTable& table) {
  table.add_builtin<Conv1DLayer>();
  table.add_builtin<Conv1DTransposeLayer>();
  table.add_builtin<Conv2DTransposeLayer>();
  table.add_builtin<Conv3DLayer>();
  table.add_builtin<Conv3DTransposeLayer>();
  table.add_builtin<DepthwiseConv1DLayer>();
  table.add_builtin<DepthwiseConv2DLayer>();
  table.add_builtin<SeparableConv1DLayer>();
  table.add_builtin<SeparableConv2DLayer>();
}

void add_normalization(ClassTable& table) {
  table.add_builtin<GroupNormalizationLayer>();
  table.add_builtin<LayerNormalizationLayer>();
  table.add_builtin<RMSNormalizationLayer>();
  table.add_builtin<SpectralNormalizationLayer>();
  table.add_builtin<UnitNormalizationLayer>();
}

void add_pooling(ClassTable& table) {
  table.add_builtin<AdaptiveAveragePooling1DLayer>();
  table.add_builtin<AdaptiveAveragePooling2DLayer>();
  table.add_builtin<AdaptiveAveragePooling3DLayer>();
  table.add_builtin<AdaptiveMaxPooling1DLayer>();
  table.add_builtin<AdaptiveMaxPooling2DLayer>();
  table.add_builtin<AdaptiveMaxPooling3DLayer>();
  table.add_builtin<AveragePooling1DLayer>();
  table.add_builtin<AveragePooling3DLayer>();
  table.add_builtin<GlobalAveragePooling1DLayer>();
  table.add_builtin<GlobalAveragePooling3DLayer>();
  table.add_builtin<GlobalMaxPooling1DLayer>();
  table.add_builtin<GlobalMaxPooling2DLayer>();
  table.add_builtin<GlobalMaxPooling3DLayer>();
  table.add_builtin<MaxPooling1DLayer>();
  table.add_builtin<MaxPooling3DLayer>();
}

void add_preprocessing(ClassTable& table) {
  table.add_builtin<CategoryEncodingLayer>();
  table.add_builtin<DiscretizationLayer>();
  table.add_builtin<HashedCrossingLayer>();
  table.add_builtin<HashingLayer>();
  table.add_builtin<IntegerLookupLayer>();
  table.add_builtin<NormalizationLayer>();
  table.add_builtin<StringLookupLayer>();
  table.add_builtin<TextVectorizationLayer>();
}

void add_reshaping(ClassTable& table) {
  table.add_builtin<Cropping1DLayer>();
  table.add_builtin<Cropping2DLayer>();
  table.add_builtin<Cropping3DLayer>();
  table.add_builtin<PermuteLayer>();
  table.add_builtin<RepeatVectorLayer>();
  table.add_builtin<UpSampling1DLayer>();
  table.add_builtin<UpSampling2DLayer>();
  table.add_builtin<UpSampling3DLayer>();
  table.add_builtin<ZeroPadding1DLayer>();
  table.add_builtin<ZeroPadding2DLayer>();
  table.add_builtin<ZeroPadding3DLayer>();
}

}  // namespace

template <>
ClassTable& class_table<LayerBase>() {
  static auto* table = [] {
    auto* all = new ClassTable(LayerBase::kKind, "keras.layers");
    all->add_builtin<ActivationLayer>();
    all->add_builtin<AdditiveAttentionLayer>();
    all->add_builtin<AttentionLayer>();
    all->add_builtin<AveragePooling2DLayer>();
    all->add_builtin<BatchNormalizationLayer>();
    all->add_builtin<BidirectionalLayer>();
    all->add_builtin<Conv2DLayer>();
    all->add_builtin<ConvLSTM1DLayer>();
    all->add_builtin<ConvLSTM2DLayer>();
    all->add_builtin<ConvLSTM3DLayer>();
    all->add_builtin<DenseLayer>();
    all->add_builtin<DropoutLayer>();
    all->add_builtin<EmbeddingLayer>();
    all->add_builtin<EinsumDenseLayer>();
    all->add_builtin<FlattenLayer>();
    all->add_builtin<GRUCellLayer>();
    all->add_builtin<GRULayer>();
    all->add_builtin<GlobalAveragePooling2DLayer>();
    all->add_builtin<GroupedQueryAttentionLayer>();
    all->add_builtin<GroupedQueryAttentionLayer>("GroupQueryAttention");  // in Keras's files
    all->add_builtin<IdentityLayer>();
    all->add_builtin<DeclaredInput>("InputLayer");
    all->add_builtin<LSTMCellLayer>();
    all->add_builtin<LSTMLayer>();
    all->add_builtin<MaskingLayer>();
    all->add_builtin<MaxPooling2DLayer>();
    all->add_builtin<MultiHeadAttentionLayer>();
    all->add_builtin<RNNLayer>();
    all->add_builtin<ReLULayer>();
    all->add_builtin<RescalingLayer>();
    all->add_builtin<ReshapeLayer>();
    all->add_builtin<ReversibleEmbeddingLayer>();
    all->add_builtin<SimpleRNNCellLayer>();
    all->add_builtin<SimpleRNNLayer>();
    all->add_builtin<SoftmaxLayer>();
    all->add_builtin<StackedRNNCellsLayer>();
    all->add_builtin<TimeDistributedLayer>();
    add_convolutions(*all);
    add_sounds(*all);
    add_images(*all);
    add_merging(*all);
    add_normalization(*all);
    add_pooling(*all);
    add_preprocessing(*all);
    add_regularization(*all);
    add_reshaping(*all);
    // Cohort's own, which Keras's files cannot name.
    all->add(typeid(DynamicEmbeddingLayer), "Cohort", "DynamicEmbedding",
             make_of_config<DynamicEmbeddingLayer>);
    add_models(*all);
    add_refused(*all);
    return all;
  }();
  return *table;
}

}  // namespace cohort::keras::internal
