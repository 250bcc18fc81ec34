// SPDX-License-Identifier: Apache-2.0
//
// Images in other sizes, by every method, and cut out of others. The numbers are TensorFlow 2.21's
// and, of folders, Keras's.
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <array>

#include "cohort/data/dataset.h"
#include "cohort/data/image/image.h"
#include "cohort/data/image/image_folder.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using testing::error_text;
using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

/// 0, 7, ..., 77 in 3 x 4 pixels.
Tensor small() { return (arange(12) * 7).to(kUint8).reshape({3, 4, 1}); }

Tensor colours() {
  const Tensor i = arange(105);
  return (i * i * 13).remainder(256).to(kUint8).reshape({5, 7, 3});
}

Tensor pattern() {
  std::vector<uint8_t> values;
  for (int64_t y = 0; y < 50; ++y) {
    for (int64_t x = 0; x < 40; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        values.push_back(static_cast<uint8_t>((x * 7 + y * 13 + c * 50 + (x * y) % 31) % 256));
      }
    }
  }
  return from_vector(values, {50, 40, 3});
}

/// Plain and weighted, which tell images apart.
std::pair<double, double> sums(const Tensor& image) {
  double plain = 0, weighted = 0;
  int64_t i = 0;
  for (float value : to_vector<float>(image.to(kFloat32))) {
    plain += value;
    weighted += static_cast<double>(value) * static_cast<double>(i++ % 1009);
  }
  return {plain, weighted};
}

void expect_near(const Tensor& image, const Floats& expected, float error = 1e-4F) {
  const Floats got = to_vector<float>(image);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], error) << i;
}

using Six = std::array<float, 6>;

struct MethodCase {
  ResizeMethod method;
  bool antialias;
  Six small;            ///< In 2 x 3 pixels.
  Six colours_3x2;      ///< The first and the last pixel.
  double colours_9x4;   ///< Sum.
  double pattern_sum;   ///< In 17 x 60 pixels.
  double pattern_sum2;  ///< Weighted.
};

using enum ResizeMethod;

constexpr MethodCase kMethodCases[] = {
    {kBilinear,
     true,
     {12.6000013F, 21.0000019F, 29.4000053F, 47.6000061F, 56.0000038F, 64.4000092F},
     {89.850502F, 143.81395F, 92.8006744F, 113.69104F, 177.727585F, 80.6544952F},
     13306.726619720459,
     389436.3075618744,
     192603032.30207825},
    {kBicubic,
     false,
     {5.42230129F, 15.2007303F, 24.9791584F, 52.0208397F, 61.7992744F, 71.5776901F},
     {115.872826F, 206.192856F, 78.1293182F, 177.070404F, 210.397247F, 18.684351F},
     13592.701557159424,
     389281.445625484,
     192167389.39641565},
    {kBicubic,
     true,
     {10.0036764F, 19.1741543F, 28.3446369F, 48.6553612F, 57.82584F, 66.9963226F},
     {88.1012802F, 144.278854F, 90.0644836F, 111.513199F, 179.11145F, 78.4389954F},
     13291.523656368256,
     389427.9737315178,
     192521404.8473053},
    {kArea,
     false,
     {11.083334F, 19.833334F, 28.5833321F, 48.4166679F, 57.1666718F, 65.9166641F},
     {88.5999985F, 135.028564F, 90.4285736F, 105.51429F, 177.085724F, 77.1714325F},
     13210.97071647644,
     389449.76323866844,
     192575796.4753301},
    {kArea,
     true,
     {11.083334F, 19.833334F, 28.5833321F, 48.4166679F, 57.1666718F, 65.9166641F},
     {88.5999985F, 135.028564F, 90.4285736F, 105.51429F, 177.085724F, 77.1714325F},
     13210.97071647644,
     389449.76323866844,
     192575796.4753301},
    {kLanczos3,
     false,
     {4.05055809F, 13.949996F, 23.8494358F, 53.1505661F, 63.0500031F, 72.94944F},
     {118.834816F, 223.464249F, 82.6241989F, 185.262695F, 212.664627F, 8.60902882F},
     13448.67855834961,
     389200.5227634609,
     192149583.39260778},
    {kLanczos3,
     true,
     {8.78636265F, 18.1706123F, 27.5548611F, 49.445137F, 58.8293915F, 68.2136459F},
     {85.455719F, 145.775253F, 88.8746719F, 110.604164F, 178.925018F, 80.4936295F},
     13349.07393360138,
     389422.94439840317,
     192524941.51133382},
    {kLanczos5,
     false,
     {2.96417475F, 12.5886803F, 22.2131939F, 54.7868118F, 64.4113159F, 74.0358276F},
     {117.785759F, 242.497528F, 95.1043549F, 193.339828F, 215.339813F, 4.81140327F},
     13291.306621551514,
     389160.2101557851,
     192140660.4907782},
    {kLanczos5,
     true,
     {8.38721466F, 17.7585449F, 27.1298733F, 49.8701324F, 59.2414589F, 68.6127853F},
     {83.6948318F, 146.526917F, 88.2654037F, 110.011902F, 177.966858F, 82.3775635F},
     13408.354808807373,
     389424.2198071182,
     192560389.11353156},
    {kGaussian,
     false,
     {8.99061871F, 18.0303574F, 27.0700989F, 49.9298935F, 58.969635F, 68.0093842F},
     {107.841049F, 183.98201F, 83.008194F, 159.761017F, 201.620087F, 39.0654564F},
     13456.580730438232,
     389359.02455711365,
     192329665.42554283},
    {kGaussian,
     true,
     {15.1999283F, 23.2693825F, 31.3388405F, 45.6611557F, 53.7306099F, 61.8000641F},
     {91.5746994F, 142.230576F, 97.7436371F, 111.713409F, 175.33847F, 88.9803925F},
     13299.08232498169,
     389436.5541820526,
     192662908.47978783},
    {kMitchellCubic,
     false,
     {7.31296062F, 16.6984692F, 26.0839806F, 50.9160194F, 60.3015251F, 69.6870422F},
     {111.835724F, 195.336105F, 80.8574219F, 168.401428F, 205.851868F, 28.9287891F},
     13505.636657238007,
     389301.61457479,
     192233760.07689548},
    {kMitchellCubic,
     true,
     {12.5405607F, 21.1889935F, 29.8374329F, 47.162571F, 55.8110008F, 64.4594421F},
     {89.2990799F, 143.266144F, 94.0338669F, 111.468979F, 177.105133F, 84.1727295F},
     13296.443677902222,
     389429.5328531265,
     192585724.10160065}};

TEST(ResizeMethods, TensorFlowsNumbers) {
  for (const MethodCase& c : kMethodCases) {
    SCOPED_TRACE(str_cat("method ", static_cast<int>(c.method), c.antialias ? " antialias" : ""));
    const ResizeOptions options{.method = c.method, .antialias = c.antialias};
    expect_near(resize_image(small(), 2, 3, options), Floats(c.small.begin(), c.small.end()));
    const Tensor few = resize_image(colours(), 3, 2, options);
    expect_near(few[0][0], Floats(c.colours_3x2.begin(), c.colours_3x2.begin() + 3));
    expect_near(few[2][1], Floats(c.colours_3x2.begin() + 3, c.colours_3x2.end()));
    EXPECT_NEAR(sums(resize_image(colours(), 9, 4, options)).first, c.colours_9x4, 0.005);
    const auto [plain, weighted] = sums(resize_image(pattern(), 17, 60, options));
    EXPECT_NEAR(plain, c.pattern_sum, 0.1);
    EXPECT_NEAR(weighted, c.pattern_sum2, 40);
  }
}

TEST(ResizeMethods, EveryPathGivesTheSameNumbers) {
  for (const MethodCase& c : kMethodCases) {
    const ResizeOptions options{.method = c.method, .antialias = c.antialias};
    const Tensor image = pattern().repeat({1, 1, 2});  // Six channels.
    const Tensor all = resize_image(image, 21, 17, options);
    EXPECT_EQ(to_vector<float>(all),
              to_vector<float>(resize_image(image.to(kFloat64), 21, 17, options)));
    for (int64_t channels : {1, 3, 4}) {
      EXPECT_EQ(to_vector<float>(all.narrow(2, 0, channels)),
                to_vector<float>(resize_image(image.narrow(2, 0, channels), 21, 17, options)));
    }
    const Tensor two = resize_image(at::stack({image, image.flip(0)}), 9, 60, options);
    EXPECT_EQ(to_vector<float>(two[1]),
              to_vector<float>(resize_image(image.flip(0), 9, 60, options)));
  }
}

TEST(ResizeMethods, AreAsFlatAsTheImage) {
  const Tensor flat = full({9, 11, 1}, 40, kFloat32);
  for (const MethodCase& c : kMethodCases) {
    for (const auto& [h, w] : {std::pair<int64_t, int64_t>{1, 1}, {4, 30}, {100, 2}, {9, 11}}) {
      const Tensor out = resize_image(flat, h, w, {.method = c.method, .antialias = c.antialias});
      EXPECT_NEAR(out.min().item<float>(), 40, 1e-3F);
      EXPECT_NEAR(out.max().item<float>(), 40, 1e-3F);
    }
    const Tensor one = resize_image(full({1, 1, 2}, 7), 3, 3, {.method = c.method});
    EXPECT_NEAR(one.min().item<float>(), 7, 1e-5F);
  }
}

TEST(Resize, AntialiasLeavesNearestAlone) {
  EXPECT_EQ(to_vector<uint8_t>(
                resize_image(small(), 2, 3, {.method = ResizeMethod::kNearest, .antialias = true})),
            (Bytes{0, 14, 21, 56, 70, 77}));
}

TEST(Resize, PreservesTheAspectRatio) {
  const auto size = [](int64_t height, int64_t width) {
    return shape_of(resize_image(colours(), height, width, {.preserve_aspect_ratio = true}));
  };
  EXPECT_EQ(size(10, 10), (Shape{7, 10, 3}));
  EXPECT_EQ(size(3, 10), (Shape{3, 4, 3}));
  EXPECT_EQ(size(10, 3), (Shape{2, 3, 3}));
  EXPECT_EQ(size(7, 4), (Shape{3, 4, 3}));
  EXPECT_EQ(size(1, 50), (Shape{1, 1, 3}));
  EXPECT_EQ(size(100, 3), (Shape{2, 3, 3}));
  EXPECT_EQ(shape_of(resize_image(zeros({2, 1000, 2, 1}), 10, 10, {.preserve_aspect_ratio = true})),
            (Shape{2, 10, 1, 1}));
}

TEST(ResizeWithPad, PutsTheWholeImageInTheMiddle) {
  const auto sum = [](int64_t height, int64_t width) {
    return sums(resize_with_pad(colours(), height, width)).first;
  };
  EXPECT_NEAR(sum(4, 8), 7069.5, 0.01);
  EXPECT_NEAR(sum(8, 4), 3002, 0.01);
  EXPECT_NEAR(sum(3, 2), 957.5, 0.01);
  EXPECT_NEAR(sum(5, 7), 12844, 0.01);
  EXPECT_NEAR(sum(10, 3), 2088.166748046875, 0.01);
  const Tensor tall = resize_with_pad(colours(), 10, 3);
  EXPECT_EQ(tall.narrow(0, 0, 3).abs().max().item<float>(), 0);
  EXPECT_EQ(tall.narrow(0, 5, 5).abs().max().item<float>(), 0);
  EXPECT_GT(tall.narrow(0, 3, 2).min().item<float>(), 0);
  expect_near(resize_with_pad(small(), 4, 4, {.method = ResizeMethod::kBicubic, .antialias = true}),
              {0, 7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 0, 0, 0, 0});
}

TEST(Crop, TensorFlowsPixels) {
  EXPECT_EQ(
      to_vector<uint8_t>(crop_to_bounding_box(
          small(), {.offset_height = 1, .offset_width = 1, .target_height = 2, .target_width = 3})),
      (Bytes{35, 42, 49, 63, 70, 77}));
  EXPECT_EQ(
      to_vector<uint8_t>(pad_to_bounding_box(
          small(), {.offset_height = 1, .offset_width = 2, .target_height = 5, .target_width = 6})),
      (Bytes{0,  0,  0,  0, 0, 0,  0,  0,  0,  7, 14, 21, 0, 0, 28,
             35, 42, 49, 0, 0, 56, 63, 70, 77, 0, 0,  0,  0, 0, 0}));
  const auto cropped = [](int64_t height, int64_t width) {
    return to_vector<uint8_t>(resize_with_crop_or_pad(small(), height, width));
  };
  EXPECT_EQ(cropped(2, 2), (Bytes{7, 14, 35, 42}));
  EXPECT_EQ(cropped(6, 5), (Bytes{0,  0,  0,  0,  0, 0, 7, 14, 21, 0, 28, 35, 42, 49, 0,
                                  56, 63, 70, 77, 0, 0, 0, 0,  0,  0, 0,  0,  0,  0,  0}));
  EXPECT_EQ(cropped(2, 9), (Bytes{0, 0, 0, 7, 14, 21, 0, 0, 0, 0, 0, 28, 35, 42, 49, 0, 0, 0}));
  EXPECT_EQ(cropped(9, 2), (Bytes{0, 0, 0, 0, 0, 0, 7, 14, 35, 42, 63, 70, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(cropped(4, 4), (Bytes{0, 7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 0, 0, 0, 0}));
}

TEST(Crop, Central) {
  const auto part = [](double fraction) { return central_crop(colours(), fraction); };
  EXPECT_EQ(shape_of(part(1)), (Shape{5, 7, 3}));
  EXPECT_EQ(shape_of(part(0.5)), (Shape{3, 5, 3}));
  EXPECT_EQ(to_vector<uint8_t>(part(0.5)[0][0]), (Bytes{64, 189, 84}));
  EXPECT_EQ(shape_of(part(0.3)), (Shape{3, 3, 3}));
  EXPECT_EQ(to_vector<uint8_t>(part(0.3)[0][0]), (Bytes{5, 208, 181}));
  EXPECT_EQ(shape_of(part(0.875)), (Shape{5, 7, 3}));
  EXPECT_EQ(shape_of(part(0.1)), (Shape{1, 1, 3}));
  EXPECT_EQ(shape_of(central_crop(zeros({2, 8, 8, 1}), 0.5)), (Shape{2, 4, 4, 1}));
  EXPECT_EQ(error_text<InvalidArgument>([&] { part(0); }),
            "[central_crop] expected a fraction above 0 and of at most 1, got 0");
  EXPECT_THROW(part(1.5), InvalidArgument);
}

TEST(Crop, Errors) {
  EXPECT_EQ(error_text<InvalidArgument>([] {
              crop_to_bounding_box(small(),
                                   {.offset_height = 2, .target_height = 2, .target_width = 4});
            }),
            "[crop_to_bounding_box] expected a box within 3 x 4, got 2 x 4 at 2, 0");
  EXPECT_THROW(
      crop_to_bounding_box(small(), {.offset_height = -1, .target_height = 2, .target_width = 2}),
      InvalidArgument);
  EXPECT_THROW(crop_to_bounding_box(small(), {.target_height = 0, .target_width = 2}),
               InvalidArgument);
  EXPECT_EQ(error_text<InvalidArgument>([] {
              pad_to_bounding_box(small(),
                                  {.offset_width = 1, .target_height = 3, .target_width = 4});
            }),
            "[pad_to_bounding_box] expected room for 3 x 4 pixels at 0, 1, got 3 x 4");
  EXPECT_THROW(resize_with_crop_or_pad(zeros({3, 3}), 2, 2), InvalidArgument);
  EXPECT_THROW(resize_with_pad(zeros({3, 0, 1}), 2, 2), InvalidArgument);
  EXPECT_THROW(resize_with_pad(small(), 0, 2), InvalidArgument);
  EXPECT_THROW(resize_image(small(), 0, 2, {.method = ResizeMethod::kArea}), InvalidArgument);
}

class ResizedFolder : public testing::FilesTest {};

TEST_F(ResizedFolder, KerassNumbers) {
  std::filesystem::create_directory(path("a"));
  write("a/x.png", encode_png(pattern()));
  struct Case {
    ResizeMethod method;
    bool pads;
    bool crops;
    std::array<int64_t, 2> size;
    std::pair<double, double> sums;
  };
  for (const Case& c :
       std::vector<Case>{{kBilinear, false, false, {16, 16}, {97903.844, 37758295.094}},
                         {kBicubic, false, false, {9, 31}, {106270.383, 44498273.807}},
                         {kArea, false, false, {33, 10}, {125998.460, 62429811.393}},
                         {kGaussian, false, false, {16, 16}, {97914.597, 37733784.259}},
                         {kMitchellCubic, false, false, {9, 31}, {106204.902, 44464233.814}},
                         {kBicubic, false, true, {16, 16}, {98038.877, 37582000.296}},
                         {kArea, false, true, {9, 31}, {107723.177, 45333747.333}},
                         {kLanczos3, false, true, {33, 10}, {126207.339, 61947439.777}},
                         {kBilinear, true, false, {16, 16}, {72967.885, 27971937.716}},
                         {kNearest, true, false, {9, 31}, {24243, 10150320}},
                         {kLanczos5, true, false, {33, 10}, {45931.485, 22080223.712}},
                         {kGaussian, true, false, {9, 31}, {23806.806, 9898081.510}}}) {
    const ImageFolder folder =
        image_dataset_from_directory(path("."), {.label_mode = LabelMode::kNone,
                                                 .batch_size = 0,
                                                 .image_size = c.size,
                                                 .shuffle = false,
                                                 .interpolation = c.method,
                                                 .crop_to_aspect_ratio = c.crops,
                                                 .pad_to_aspect_ratio = c.pads});
    const Element e = folder.dataset.get_single_element();
    EXPECT_TRUE(folder.dataset.element_spec().compatible_with(e));
    const auto [plain, weighted] = sums(e.tensor());
    EXPECT_NEAR(plain, c.sums.first, 0.05) << static_cast<int>(c.method);
    EXPECT_NEAR(weighted, c.sums.second, 20) << static_cast<int>(c.method);
  }
}

TEST_F(ResizedFolder, Errors) {
  std::filesystem::create_directory(path("a"));
  write("a/x.png", encode_png(pattern()));
  EXPECT_EQ(error_text<InvalidArgument>([&] {
              image_dataset_from_directory(
                  path("."), {.crop_to_aspect_ratio = true, .pad_to_aspect_ratio = true});
            }),
            "[image_dataset_from_directory] expected one of crop_to_aspect_ratio and "
            "pad_to_aspect_ratio, got both");
  const std::string wide = encode_png(zeros({1, 1000, 3}, kUint8));
  EXPECT_EQ(shape_of(decode_and_resize(wide, 10, 10, {.pad_to_aspect_ratio = true})),
            (Shape{10, 10, 3}));
  EXPECT_EQ(to_vector<float>(decode_and_resize(encode_png(pattern()), 7, 9, {.antialias = true})),
            to_vector<float>(resize_image(pattern(), 7, 9, {.antialias = true})));
}

}  // namespace
}  // namespace cohort
