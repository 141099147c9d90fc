#include "model/external_data.h"

#include <sys/vfs.h>

#include <atomic>
#include <thread>
#include <vector>

#include "model/model_file.h"
#include "model_testing.h"

namespace liger {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = ExternalDataStep::Kind;

// y = x * w * v with two weights, both float32 [4].
onnx::ModelProto TwoWeights(const std::string& w_location, const std::string& v_location) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 18]>
agraph (float[2, 4] x) => (float[2, 4] y)
<float[4] w = {0, 0, 0, 0}, float[4] v = {0, 0, 0, 0}>
{
  s = Mul (x, w)
  y = Mul (s, v)
})");
  MakeExternal(*model.mutable_graph()->mutable_initializer(0), w_location, {4}, "0", "16");
  MakeExternal(*model.mutable_graph()->mutable_initializer(1), v_location, {4}, "16", "16");
  return model;
}

onnx::ModelProto TwoWeights(const std::string& location) { return TwoWeights(location, location); }

std::string Payload(size_t size, char first = 'a') {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(first + static_cast<char>(i % 23));
  return bytes;
}

fs::path WriteModel(const fs::path& path, const onnx::ModelProto& model) {
  return WriteFile(path, model.SerializeAsString());
}

Result<ExternalData> Find(const fs::path& model_path) {
  auto file = LoadModelFile(model_path);
  if (!file) return file.error();
  return FindExternalData(file->proto, file->folder);
}

// --- What the tensors say ------------------------------------------------------------------------

TEST(PayloadBytes, CountsBytesAndPackedElements) {
  const struct {
    int32_t dtype;
    std::vector<int64_t> dims;
    int64_t bytes;
  } kCases[] = {
      {onnx::TensorProto::FLOAT, {2, 3}, 24},
      {onnx::TensorProto::BFLOAT16, {5}, 10},
      {onnx::TensorProto::DOUBLE, {}, 8},
      {onnx::TensorProto::BOOL, {7}, 7},
      {onnx::TensorProto::FLOAT8E4M3FN, {7}, 7},
      {onnx::TensorProto::COMPLEX128, {2}, 32},
      {onnx::TensorProto::INT4, {5}, 3},
      {onnx::TensorProto::UINT2, {5}, 2},
      {onnx::TensorProto::FLOAT6E2M3, {3}, 3},
      {onnx::TensorProto::FLOAT, {0, 1000}, 0},
      {onnx::TensorProto::FLOAT, {int64_t{1} << 40, int64_t{1} << 40}, -1},
      {onnx::TensorProto::FLOAT, {int64_t{1} << 61}, -1},
      {onnx::TensorProto::FLOAT, {-1}, -1},
      {onnx::TensorProto::STRING, {1}, -1},
      {onnx::TensorProto::UNDEFINED, {1}, -1},
      {9999, {1}, -1},
  };
  for (const auto& c : kCases) EXPECT_EQ(PayloadBytes(c.dtype, c.dims), c.bytes) << c.dtype;
}

TEST(ListExternalTensors, FindsTensorsEverywhereInTheModel) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
agraph (float[4] x, bool c) => (float[4] y)
<float[4] top = {0, 0, 0, 0}, float[4] kept = {1, 2, 3, 4}>
{
  [const] k = Constant <value = float[4] {1, 2, 3, 4}> ()
  s = local.F (x)
  y = If (c) <
    then_branch = g1 () => (float[4] p) <float[4] inner = {0, 0, 0, 0}> { p = Mul (s, inner) },
    else_branch = g2 () => (float[4] q) { q = Mul (s, top) }
  >
}
<domain: "local", opset_import: ["" : 18]>
F (x) => (y) { f = Constant <value = float[4] {1, 2, 3, 4}> () y = Mul (x, f) }
)");
  onnx::GraphProto& graph = *model.mutable_graph();
  MakeExternal(*graph.mutable_initializer(0), "top.bin", {4}, "4096", "16");
  MakeExternal(*graph.mutable_node(0)->mutable_attribute(0)->mutable_t(), "const.bin", {4});
  onnx::GraphProto& body = *graph.mutable_node(2)->mutable_attribute(0)->mutable_g();
  MakeExternal(*body.mutable_initializer(0), "inner.bin", {2, 2});
  MakeExternal(*model.mutable_functions(0)->mutable_node(0)->mutable_attribute(0)->mutable_t(),
               "function.bin", {4});
  auto* sparse = graph.add_sparse_initializer();
  sparse->mutable_values()->set_name("sparse");
  MakeExternal(*sparse->mutable_values(), "values.bin", {1});
  MakeExternal(*sparse->mutable_indices(), "indices.bin", {1});
  onnx::AttributeProto* list = graph.mutable_node(1)->add_attribute();
  list->set_name("list");
  MakeExternal(*list->add_tensors(), "list.bin", {1});
  MakeExternal(*model.add_training_info()->mutable_algorithm()->add_initializer(), "train.bin",
               {1});

  const auto tensors = ListExternalTensors(model);
  ASSERT_OK(tensors);
  std::set<std::string> locations;
  for (const ExternalTensor& tensor : *tensors) locations.insert(tensor.location);
  EXPECT_THAT(locations, ElementsAre("const.bin", "function.bin", "indices.bin", "inner.bin",
                                     "list.bin", "top.bin", "train.bin", "values.bin"));
  const ExternalTensor& top = tensors->front();
  EXPECT_EQ(top.name, "top");
  EXPECT_EQ(top.place, "initializer");
  EXPECT_EQ(top.offset, 4096);
  EXPECT_EQ(top.length, 16);
  EXPECT_EQ(top.bytes, 16);
  EXPECT_THAT(top.dims, ElementsAre(4));
  const auto constant = std::find_if(tensors->begin(), tensors->end(), [](const auto& tensor) {
    return tensor.location == "const.bin";
  });
  EXPECT_EQ(constant->place, "Constant node 'const', attribute 'value'");
  EXPECT_EQ(constant->length, std::nullopt);
}

TEST(ListExternalTensors, RefusesMalformedEntries) {
  const struct {
    const char* key;
    const char* value;
    const char* message;
  } kCases[] = {
      {"offset", "-1", "offset of its external data is '-1'"},
      {"offset", "0x10", "offset of its external data is '0x10'"},
      {"length", "", "length of its external data is ''"},
      {"length", "99999999999999999999", "not a number of bytes"},
      {"location", "", "names no file"},
  };
  for (const auto& c : kCases) {
    onnx::ModelProto model = TwoWeights("w.bin");
    SetEntry(*model.mutable_graph()->mutable_initializer(0), c.key, c.value);
    EXPECT_ERROR(ListExternalTensors(model), ErrorCode::kInvalidModel, HasSubstr("tensor 'w'"),
                 HasSubstr(c.message));
  }
  onnx::ModelProto model = TwoWeights("w.bin");
  model.mutable_graph()->mutable_initializer(0)->clear_external_data();
  EXPECT_ERROR(ListExternalTensors(model), ErrorCode::kInvalidModel, HasSubstr("names no file"));
  model = TwoWeights("w.bin");
  model.mutable_graph()->mutable_initializer(1)->set_data_type(onnx::TensorProto::STRING);
  EXPECT_ERROR(ListExternalTensors(model), ErrorCode::kInvalidModel,
               HasSubstr("'v' holds strings"));
}

// --- The rules of ONNX Runtime -------------------------------------------------------------------

TEST(FindExternalData, GivesFilesAndTensors) {
  const TemporaryFolder folder;
  WriteFile(folder / "w.bin", Payload(40));
  WriteFile(folder / "sub/v.bin", Payload(32));
  const auto data = Find(WriteModel(folder / "m.onnx", TwoWeights("./w.bin", "sub/v.bin")));
  ASSERT_OK(data);
  EXPECT_EQ(data->tensors.size(), 2u);
  ASSERT_EQ(data->files.size(), 2u);
  EXPECT_EQ(data->files[0].location, "sub/v.bin");
  EXPECT_EQ(data->files[0].real_path, folder / "sub/v.bin");
  EXPECT_EQ(data->files[1].location, "w.bin");
  EXPECT_EQ(data->files[1].size, 40);
}

TEST(FindExternalData, AcceptsWhatOnnxRuntimeAccepts) {
  const TemporaryFolder folder;
  WriteFile(folder / "w.bin", Payload(32));
  WriteFile(folder / "sub/other.bin", Payload(32));
  fs::create_symlink("w.bin", folder / "link.bin");
  fs::create_hard_link(folder / "w.bin", folder / "hard.bin");
  for (const char* location : {"w.bin", "sub/../w.bin", "sub/other.bin", "link.bin", "hard.bin"}) {
    SCOPED_TRACE(location);
    ASSERT_OK(Find(WriteModel(folder / "m.onnx", TwoWeights(location))));
  }
  // The folder is itself a link.
  fs::create_directory_symlink(folder.path(), folder / "folder_link");
  WriteModel(folder / "m.onnx", TwoWeights("w.bin"));
  ASSERT_OK(Find(folder / "folder_link/m.onnx"));
}

TEST(FindExternalData, NamesTensorFileAndRemedyOfWhatItRefuses) {
  const TemporaryFolder folder;
  WriteFile(folder / "outside.bin", Payload(32));
  WriteFile(folder / "m/short.bin", Payload(31));
  WriteFile(folder / "m/pointer.bin", "version https://git-lfs.github.com/spec/v1\n");
  fs::create_directory(folder / "m/folder.bin");
  fs::create_symlink("../outside.bin", folder / "m/escaping.bin");
  fs::create_symlink("nowhere.bin", folder / "m/dangling.bin");
  fs::create_symlink("loop.bin", folder / "m/loop.bin");
  fs::create_directory_symlink("..", folder / "m/up");
  const struct {
    std::string location;
    const char* message;
    const char* hint;
  } kCases[] = {
      {"missing.bin", "a file that is not in", "beside the model"},
      {"sub/missing.bin", "a file that is not in", "'sub/missing.bin'"},
      {"../outside.bin", "leads out of the model's folder", "move the data file"},
      {"sub/../../outside.bin", "leads out of the model's folder", "move the data file"},
      {(folder / "outside.bin").string(), "an absolute path", "move the data file"},
      {"/dev/zero", "an absolute path", "move the data file"},
      {"escaping.bin", "outside the model's folder", "hard link"},
      {"up/outside.bin", "outside the model's folder", "hard link"},
      {"dangling.bin", "a link to 'nowhere.bin'", "download or restore"},
      {"loop.bin", "cannot be followed", "download or restore"},
      {"folder.bin", "not a regular file", "data file"},
      {".", "not a regular file", "data file"},
      {"short.bin", "bytes 16 to 32 of 'short.bin', which has only 31", "cut off"},
      {std::string("nul\0.bin", 8), "NUL character", "again"},
      {std::string(300, 'n'), "cannot be reached", "permissions"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.location);
    const auto data = Find(WriteModel(folder / "m/m.onnx", TwoWeights(c.location)));
    EXPECT_ERROR(data, ErrorCode::kInvalidModel, HasSubstr("tensor '"), HasSubstr(c.message));
    EXPECT_THAT(data.error().hint, HasSubstr(c.hint));
  }
  const auto data = Find(WriteModel(folder / "m/m.onnx", TwoWeights("missing.bin")));
  EXPECT_ERROR(data, ErrorCode::kInvalidModel, HasSubstr("tensor 'w' (and 1 more tensor there)"));
}

TEST(FindExternalData, ChecksRangesAgainstFileDtypeAndDims) {
  const TemporaryFolder folder;
  WriteFile(folder / "w.bin", Payload(32));
  const struct {
    std::vector<int64_t> dims;
    const char* offset;
    const char* length;
    const char* message;  // empty: fine
  } kCases[] = {
      {{4}, "", "", ""},
      {{4}, "16", "", ""},
      {{4}, "16", "16", ""},
      {{8}, "", "32", ""},
      {{0}, "32", "0", ""},
      {{4}, "17", "", "bytes 17 to 33 of 'w.bin', which has only 32"},
      {{4}, "17", "16", "bytes 17 to 33"},
      {{0}, "33", "0", "bytes 33 to 33"},
      {{4}, "9223372036854775807", "16", "bytes 9223372036854775807 to 9223372036854775823"},
      {{4}, "0", "15", "needs 16 bytes for its dtype and dims"},
      {{4}, "0", "32", "needs 16 bytes for its dtype and dims"},
      {{1 << 20}, "", "", "bytes 0 to 4194304"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(std::string(c.offset) + " + " + c.length);
    onnx::ModelProto model = TwoWeights("w.bin");
    MakeExternal(*model.mutable_graph()->mutable_initializer(0), "w.bin", c.dims, c.offset,
                 c.length);
    const auto data = FindExternalData(model, folder.path());
    if (*c.message == '\0') {
      EXPECT_TRUE(data) << data.error().message;
    } else {
      EXPECT_ERROR(data, ErrorCode::kInvalidModel, HasSubstr("tensor 'w'"), HasSubstr(c.message));
    }
  }
}

TEST(FindExternalData, OpensNoDataFile) {
  const TemporaryFolder folder;
  WriteFile(folder / "w.bin", Payload(32));
  ASSERT_EQ(::chmod((folder / "w.bin").c_str(), 0), 0);
  WriteModel(folder / "m.onnx", TwoWeights("w.bin"));
  const Unprivileged user;  // who could not open it
  const auto data = Find(folder / "m.onnx");
  ASSERT_OK(data);
  const auto plan = PlanExternalData(*data, folder / "out.onnx", ExternalDataMode::kAuto);
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->nothing_to_do());
}

TEST(FindExternalData, TakesDataBesideTheFileALinkLeadsTo) {
  const TemporaryFolder folder;
  WriteFile(folder / "real/w.bin", Payload(32));
  WriteModel(folder / "real/m.onnx", TwoWeights("w.bin"));
  fs::create_directory(folder / "links");
  fs::create_symlink("../real/m.onnx", folder / "links/m.onnx");
  const auto data = Find(folder / "links/m.onnx");
  ASSERT_OK(data);
  EXPECT_EQ(data->files[0].real_path, folder / "real/w.bin");

  // ONNX Runtime would not find the data beside the link: it has to be brought along.
  const fs::path beside_link = folder / "links/out.onnx";
  const auto refused = PlanExternalData(*data, beside_link, ExternalDataMode::kAuto);
  EXPECT_ERROR(refused, ErrorCode::kWrite, HasSubstr("'w.bin' (32 bytes)"));
  const auto beside_data =
      PlanExternalData(*data, folder / "real/out.onnx", ExternalDataMode::kAuto);
  ASSERT_OK(beside_data);
  EXPECT_TRUE(beside_data->nothing_to_do());
  const auto copy = PlanExternalData(*data, beside_link, ExternalDataMode::kCopy);
  ASSERT_OK(copy);
  ASSERT_OK(ApplyExternalData(*copy));
  EXPECT_EQ(ReadFile(folder / "links/w.bin"), Payload(32));
}

// --- Reading -------------------------------------------------------------------------------------

TEST(ExternalReader, ReadsExactlyTheRangeAndRemembersIt) {
  const TemporaryFolder folder;
  const std::string payload = Payload(100);
  WriteFile(folder / "w.bin", payload);
  ExternalReader reader{ModelFolder(folder.path())};
  const auto bytes = reader.ReadRange("w.bin", 10, 7, "eps");
  ASSERT_OK(bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()),
            payload.substr(10, 7));
  ASSERT_OK(reader.ReadRange("w.bin", 100, 0));
  const auto tensor = reader.Read(TwoWeights("w.bin").graph().initializer(1));
  ASSERT_OK(tensor);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor->data()), tensor->size()),
            payload.substr(16, 16));
  ASSERT_EQ(reader.reads().size(), 3u);
  EXPECT_EQ(reader.reads()[0].tensor, "eps");
  EXPECT_EQ(reader.reads()[0].file, "w.bin");
  EXPECT_EQ(reader.reads()[0].bytes, 7);
  EXPECT_EQ(reader.reads()[2].tensor, "v");
}

TEST(ExternalReader, RefusesWhatIsNotThere) {
  const TemporaryFolder folder;
  WriteFile(folder / "m/w.bin", Payload(100));
  WriteFile(folder / "secret", Payload(100));
  fs::create_symlink("../secret", folder / "m/link.bin");
  ExternalReader reader{ModelFolder(folder / "m")};
  const auto code = ErrorCode::kInvalidModel;
  EXPECT_ERROR(reader.ReadRange("w.bin", 90, 11, "t"), code, HasSubstr("which has only 100"));
  EXPECT_ERROR(reader.ReadRange("w.bin", 0, int64_t{1} << 62), code, HasSubstr("only 100"));
  EXPECT_ERROR(reader.ReadRange("w.bin", -1, 4), code, HasSubstr("offset -1"));
  EXPECT_ERROR(reader.ReadRange("w.bin", 0, -4), code, HasSubstr("length -4"));
  EXPECT_ERROR(reader.ReadRange("../secret", 0, 4), code, HasSubstr("leads out"));
  EXPECT_ERROR(reader.ReadRange("link.bin", 0, 4), code, HasSubstr("outside the model's folder"));
  EXPECT_ERROR(reader.ReadRange("missing.bin", 0, 4), code, HasSubstr("not in"));
  ASSERT_EQ(::chmod((folder / "m/w.bin").c_str(), 0), 0);
  {
    const Unprivileged user;
    EXPECT_ERROR(reader.ReadRange("w.bin", 0, 4), code, HasSubstr("Permission denied"));
  }
  EXPECT_THAT(reader.reads(), IsEmpty());
}

// --- Bringing data along -------------------------------------------------------------------------

class Placement : public ::testing::Test {
 protected:
  Placement() {
    WriteFile(folder_ / "in/w.bin", Payload(100));
    WriteFile(folder_ / "in/sub/v.bin", Payload(200, 'A'));
    WriteModel(folder_ / "in/m.onnx", TwoWeights("w.bin", "sub/v.bin"));
    fs::create_directory(folder_ / "out");
    auto found = Find(folder_ / "in/m.onnx");
    if (!found) {
      ADD_FAILURE() << found.error().message;
    } else {
      data_ = *std::move(found);
    }
  }

  Result<ExternalDataPlan> Plan(const char* output, ExternalDataMode mode) {
    return PlanExternalData(data_, folder_ / output, mode);
  }

  // The model in the output folder finds its data, by the rules of ONNX Runtime.
  void ExpectComplete(const char* output) {
    WriteModel(folder_ / output, TwoWeights("w.bin", "sub/v.bin"));
    const auto data = Find(folder_ / output);
    ASSERT_OK(data);
    const fs::path out = (folder_ / output).parent_path();
    EXPECT_EQ(ReadFile(out / "w.bin"), Payload(100));
    EXPECT_EQ(ReadFile(out / "sub/v.bin"), Payload(200, 'A'));
  }

  TemporaryFolder folder_;
  ExternalData data_;
};

TEST_F(Placement, TouchesNothingInTheSameFolder) {
  fs::create_directory_symlink("in", folder_ / "in_link");
  for (const char* output : {"in/m.liger.onnx", "in_link/out.onnx", "in/../in/out.onnx"}) {
    for (const auto mode :
         {ExternalDataMode::kAuto, ExternalDataMode::kCopy, ExternalDataMode::kHardlink}) {
      const auto plan = Plan(output, mode);
      ASSERT_OK(plan);
      EXPECT_TRUE(plan->nothing_to_do());
      EXPECT_EQ(plan->steps.size(), 2u);
      const auto files = ApplyExternalData(*plan);
      ASSERT_OK(files);
      EXPECT_THAT(files->created, IsEmpty());
    }
  }
}

TEST_F(Placement, AsksForAChoiceInAnotherFolder) {
  const auto plan = Plan("out/m.onnx", ExternalDataMode::kAuto);
  EXPECT_ERROR(plan, ErrorCode::kWrite, HasSubstr("would not find its data"),
               HasSubstr("'sub/v.bin' and 1 more (300 bytes)"));
  EXPECT_THAT(plan.error().hint,
              AllOf(HasSubstr("--external-data copy"), HasSubstr("--external-data hardlink"),
                    HasSubstr((folder_ / "in/m.onnx").string())));
}

TEST_F(Placement, Copies) {
  const auto plan = Plan("out/m.onnx", ExternalDataMode::kCopy);
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->nothing_to_do());
  EXPECT_THAT(Listing(folder_ / "out"), IsEmpty());  // a plan changes nothing
  const auto files = ApplyExternalData(*plan);
  ASSERT_OK(files);
  EXPECT_THAT(files->created, ElementsAre(folder_ / "out/sub/v.bin", folder_ / "out/w.bin"));
  EXPECT_FALSE(fs::equivalent(folder_ / "in/w.bin", folder_ / "out/w.bin"));
  EXPECT_THAT(Listing(folder_ / "out"), ElementsAre("sub", "w.bin"));
  ExpectComplete("out/m.onnx");
}

TEST_F(Placement, Hardlinks) {
  const auto plan = Plan("out/m.onnx", ExternalDataMode::kHardlink);
  ASSERT_OK(plan);
  EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("hard links")));
  const auto files = ApplyExternalData(*plan);
  ASSERT_OK(files);
  EXPECT_EQ(files->copied_bytes, 0);
  EXPECT_TRUE(fs::equivalent(folder_ / "in/w.bin", folder_ / "out/w.bin"));
  ExpectComplete("out/m.onnx");
  // Once there, they are simply found.
  const auto again = Plan("out/m.onnx", ExternalDataMode::kAuto);
  ASSERT_OK(again);
  EXPECT_TRUE(again->nothing_to_do());
}

TEST_F(Placement, AcceptsAnEqualFileAndNeverReplacesAnother) {
  const auto plan = Plan("out/m.onnx", ExternalDataMode::kCopy);
  ASSERT_OK(plan);
  ASSERT_OK(ApplyExternalData(*plan));
  for (const auto mode : {ExternalDataMode::kAuto, ExternalDataMode::kCopy}) {
    const auto again = Plan("out/m.onnx", mode);
    ASSERT_OK(again);
    EXPECT_EQ(again->steps[0].kind, Kind::kCompare);
    const auto files = ApplyExternalData(*again);
    ASSERT_OK(files);
    EXPECT_THAT(files->created, IsEmpty());
  }

  std::string other = Payload(100);
  other[99] ^= 1;
  WriteFile(folder_ / "out/w.bin", other);
  const auto same_size = Plan("out/m.onnx", ExternalDataMode::kCopy);
  ASSERT_OK(same_size);
  EXPECT_ERROR(ApplyExternalData(*same_size), ErrorCode::kWrite, HasSubstr("out/w.bin'"),
               HasSubstr("a file with other contents is"));
  EXPECT_EQ(ReadFile(folder_ / "out/w.bin"), other);

  WriteFile(folder_ / "out/w.bin", "other");
  const auto other_size = Plan("out/m.onnx", ExternalDataMode::kHardlink);
  EXPECT_ERROR(other_size, ErrorCode::kWrite, HasSubstr("5 bytes instead of 100 bytes"));
  EXPECT_THAT(other_size.error().hint, HasSubstr("not replaced"));
}

TEST_F(Placement, RefusesAnOutputWithTheNameOfTheData) {
  for (const auto mode : {ExternalDataMode::kAuto, ExternalDataMode::kCopy}) {
    EXPECT_ERROR(Plan("in/w.bin", mode), ErrorCode::kWrite, HasSubstr("name of the model's data"));
    EXPECT_ERROR(Plan("out/w.bin", mode), ErrorCode::kWrite, HasSubstr("name of the model's data"));
  }
  // A data file in a subfolder, reached through that folder.
  EXPECT_ERROR(Plan("in/sub/v.bin", ExternalDataMode::kAuto), ErrorCode::kWrite,
               HasSubstr("name of the model's data"));
}

TEST_F(Placement, RefusesFoldersThatAreMissingOrLeadAway) {
  EXPECT_ERROR(Plan("missing/m.onnx", ExternalDataMode::kCopy), ErrorCode::kWrite,
               HasSubstr("does not exist"));
  fs::create_directory(folder_ / "elsewhere");
  fs::create_directory_symlink("../elsewhere", folder_ / "out/sub");
  EXPECT_ERROR(Plan("out/m.onnx", ExternalDataMode::kCopy), ErrorCode::kWrite,
               HasSubstr("leads out of"));
  EXPECT_THAT(Listing(folder_ / "elsewhere"), IsEmpty());
}

TEST_F(Placement, RefusesWhatStandsInTheWay) {
  fs::create_directory(folder_ / "out/w.bin");
  EXPECT_ERROR(Plan("out/m.onnx", ExternalDataMode::kCopy), ErrorCode::kWrite,
               HasSubstr("no regular file"));
  fs::remove(folder_ / "out/w.bin");
  fs::create_symlink("nowhere", folder_ / "out/w.bin");
  EXPECT_ERROR(Plan("out/m.onnx", ExternalDataMode::kCopy), ErrorCode::kWrite,
               HasSubstr("leads nowhere"));
}

TEST_F(Placement, TakesBackWhatItMadeWhenALaterFileFails) {
  const auto plan = Plan("out/m.onnx", ExternalDataMode::kCopy);
  ASSERT_OK(plan);
  WriteFile(folder_ / "out/w.bin", "made by another program in between");
  EXPECT_ERROR(ApplyExternalData(*plan), ErrorCode::kWrite, HasSubstr("has just made a file"));
  EXPECT_THAT(Listing(folder_ / "out"), ElementsAre("w.bin"));
  EXPECT_EQ(ReadFile(folder_ / "out/w.bin"), "made by another program in between");

  const auto links = Plan("in/sub/../../out/m.onnx", ExternalDataMode::kHardlink);
  ASSERT_FALSE(links);
  fs::remove(folder_ / "out/w.bin");
  const auto made = ApplyExternalData(*plan);
  ASSERT_OK(made);
  RemoveCreated(*made);
  EXPECT_THAT(Listing(folder_ / "out"), IsEmpty());
}

TEST_F(Placement, WhatTheCallerCarriesIsLeftToTheCaller) {
  const auto plan = Plan("out/m.onnx", ExternalDataMode::kCarried);
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->nothing_to_do());
  // Data beside the file that a link leads to, and not beside the link, is nothing that is carried.
  data_.folder.given = folder_ / "elsewhere";
  fs::create_directory(folder_ / "elsewhere");
  const auto copies = Plan("out/m.onnx", ExternalDataMode::kCarried);
  ASSERT_OK(copies);
  EXPECT_EQ(copies->steps.size(), 2U);
  for (const ExternalDataStep& step : copies->steps) {
    EXPECT_EQ(step.kind, ExternalDataStep::Kind::kCopy);
  }
}

TEST_F(Placement, ModelsThatShareDataCanPlaceItAtTheSameTime) {
  for (const auto mode : {ExternalDataMode::kCopy, ExternalDataMode::kHardlink}) {
    const auto plan = Plan("out/m.onnx", mode);
    ASSERT_OK(plan);
    std::vector<std::thread> threads;
    std::atomic<int> made = 0;
    std::atomic<int> failed = 0;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const auto files = ApplyExternalData(*plan);
        failed += files ? 0 : 1;
        made += files ? static_cast<int>(files->created.size()) : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failed, 0);
    EXPECT_EQ(made, 2);
    EXPECT_EQ(ReadFile(folder_ / "out/w.bin"), Payload(100));
    fs::remove_all(folder_ / "out");
    fs::create_directory(folder_ / "out");
  }
}

TEST_F(Placement, SaysWhyItCannotWrite) {
  const auto plan = Plan("out/m.onnx", ExternalDataMode::kCopy);
  const auto links = Plan("out/m.onnx", ExternalDataMode::kHardlink);
  ASSERT_OK(plan);
  ASSERT_OK(links);
  fs::create_directory(folder_ / "out/sub");
  ASSERT_EQ(::chmod((folder_ / "out/sub").c_str(), 0555), 0);
  const Unprivileged user;
  EXPECT_ERROR(ApplyExternalData(*plan), ErrorCode::kWrite, HasSubstr("Permission denied"));
  EXPECT_ERROR(ApplyExternalData(*links), ErrorCode::kWrite, HasSubstr("out/sub/v.bin"));
}

TEST_F(Placement, KeepsPrivateWeightsPrivate) {
  ASSERT_EQ(::chmod((folder_ / "in/w.bin").c_str(), 0600), 0);
  const auto plan = Plan("out/m.onnx", ExternalDataMode::kCopy);
  ASSERT_OK(plan);
  ASSERT_OK(ApplyExternalData(*plan));
  EXPECT_EQ(static_cast<int>(fs::status(folder_ / "out/w.bin").permissions()), 0600);
}

TEST_F(Placement, HardlinksOnlyOnOneFileSystem) {
  // A second file system, where there is one.
  struct stat here;
  struct stat there;
  if (::stat("/dev/shm", &there) != 0 || ::access("/dev/shm", W_OK) != 0 ||
      ::stat(folder_.path().c_str(), &here) != 0 || here.st_dev == there.st_dev) {
    GTEST_SKIP() << "/dev/shm is no other file system";
  }
  const fs::path out = fs::path("/dev/shm") / ("liger-test-" + std::to_string(::getpid()));
  fs::create_directory(out);
  const auto refused = PlanExternalData(data_, out / "m.onnx", ExternalDataMode::kHardlink);
  const auto plan = PlanExternalData(data_, out / "m.onnx", ExternalDataMode::kCopy);
  const auto files = plan ? ApplyExternalData(*plan) : Result<ExternalDataFiles>(plan.error());
  const std::string copied = ReadFile(out / "w.bin");
  fs::remove_all(out);
  EXPECT_ERROR(refused, ErrorCode::kWrite, HasSubstr("another file system"));
  EXPECT_EQ(refused.error().hint, "use --external-data copy");
  ASSERT_OK(files);
  EXPECT_EQ(copied, Payload(100));
}

TEST(PlanExternalData, HasNothingToDoWithoutExternalData) {
  const auto plan = PlanExternalData({}, "/no/such/folder/m.onnx", ExternalDataMode::kAuto);
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->nothing_to_do());
}

TEST(PlanExternalData, MakesTheFoldersALocationPassesThrough) {
  const TemporaryFolder folder;
  WriteFile(folder / "in/w.bin", Payload(32));
  fs::create_directories(folder / "in/a/b");
  fs::create_directory(folder / "out");
  const auto data = Find(WriteModel(folder / "in/m.onnx", TwoWeights("a/b/../../w.bin")));
  ASSERT_OK(data);
  const auto plan = PlanExternalData(*data, folder / "out/m.onnx", ExternalDataMode::kCopy);
  ASSERT_OK(plan);
  EXPECT_THAT(plan->folders, ElementsAre(folder / "out/a", folder / "out/a/b"));
  ASSERT_OK(ApplyExternalData(*plan));
  ASSERT_OK(Find(WriteModel(folder / "out/m.onnx", TwoWeights("a/b/../../w.bin"))));
}

TEST(PlanExternalData, ModesHaveNames) {
  EXPECT_EQ(ParseExternalDataMode("copy"), ExternalDataMode::kCopy);
  EXPECT_EQ(ParseExternalDataMode("hardlink"), ExternalDataMode::kHardlink);
  EXPECT_EQ(ParseExternalDataMode("auto"), ExternalDataMode::kAuto);
  EXPECT_EQ(ParseExternalDataMode("Copy"), std::nullopt);
}

// Bytes on both sides of the buffers, and holes between them.
TEST(ApplyExternalData, CopiesLargeFilesExactlyAndKeepsHoles) {
  const TemporaryFolder folder;
  constexpr off_t kSize = (off_t{64} << 20) + 123;
  WriteFile(folder / "in/w.bin", Payload(3'000'000));
  ASSERT_EQ(::truncate((folder / "in/w.bin").c_str(), kSize), 0);
  {
    std::fstream stream(folder / "in/w.bin", std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(40 << 20);
    stream << Payload(1'234'567, 'Q');
  }
  fs::create_directory(folder / "out");
  const auto data = Find(WriteModel(folder / "in/m.onnx", TwoWeights("w.bin")));
  ASSERT_OK(data);
  const auto plan = PlanExternalData(*data, folder / "out/m.onnx", ExternalDataMode::kCopy);
  ASSERT_OK(plan);
  const auto files = ApplyExternalData(*plan);
  ASSERT_OK(files);
  EXPECT_TRUE(ReadFile(folder / "in/w.bin") == ReadFile(folder / "out/w.bin"));

  struct stat source;
  struct stat copy;
  ASSERT_EQ(::stat((folder / "in/w.bin").c_str(), &source), 0);
  ASSERT_EQ(::stat((folder / "out/w.bin").c_str(), &copy), 0);
  EXPECT_EQ(copy.st_size, kSize);
  if (source.st_blocks * 512 > kSize / 2) GTEST_SKIP() << "this file system has no holes";
  EXPECT_LT(copy.st_blocks * 512, kSize / 2);
  EXPECT_LT(files->copied_bytes, kSize / 2);
}

TEST(ApplyExternalData, CopiesEmptyFilesAndFilesThatAreOneHole) {
  const TemporaryFolder folder;
  WriteFile(folder / "in/w.bin", "");
  WriteFile(folder / "in/v.bin", "");
  ASSERT_EQ(::truncate((folder / "in/v.bin").c_str(), 10'000'000), 0);
  fs::create_directory(folder / "out");
  onnx::ModelProto model = TwoWeights("w.bin", "v.bin");
  MakeExternal(*model.mutable_graph()->mutable_initializer(0), "w.bin", {0});
  const auto data = FindExternalData(model, folder / "in");
  ASSERT_OK(data);
  const auto plan = PlanExternalData(*data, folder / "out/m.onnx", ExternalDataMode::kCopy);
  ASSERT_OK(plan);
  ASSERT_OK(ApplyExternalData(*plan));
  EXPECT_EQ(ReadFile(folder / "out/w.bin"), "");
  const std::vector<char> zeros(10'000'000, '\0');
  EXPECT_TRUE(ReadFile(folder / "out/v.bin") == std::string_view(zeros.data(), zeros.size()));
}

// snapshots/<revision>/ holds links into blobs/, for the model as well as for its data.
class HuggingFaceCache : public ::testing::Test {
 protected:
  HuggingFaceCache() {
    WriteFile(folder_ / "blobs/1111", TwoWeights("model.onnx.data").SerializeAsString());
    WriteFile(folder_ / "blobs/2222", Payload(32));
    fs::create_directories(folder_ / "snapshots/main");
    fs::create_symlink("../../blobs/1111", folder_ / "snapshots/main/model.onnx");
    fs::create_symlink("../../blobs/2222", folder_ / "snapshots/main/model.onnx.data");
    fs::create_directory(folder_ / "out");
  }

  TemporaryFolder folder_;
};

TEST_F(HuggingFaceCache, IsReadThroughItsLinks) {
  const auto data = Find(folder_ / "snapshots/main/model.onnx");
  ASSERT_OK(data);
  EXPECT_EQ(data->files[0].location, "model.onnx.data");
  EXPECT_EQ(data->files[0].real_path, folder_ / "blobs/2222");
  ExternalReader reader(data->folder);
  ASSERT_OK(reader.ReadRange("model.onnx.data", 0, 32));
  // With the links of the data alone the rule is broken: such a model does not load.
  fs::remove(folder_ / "snapshots/main/model.onnx");
  fs::copy_file(folder_ / "blobs/1111", folder_ / "snapshots/main/model.onnx");
  EXPECT_ERROR(Find(folder_ / "snapshots/main/model.onnx"), ErrorCode::kInvalidModel,
               HasSubstr("outside the model's folder"));
}

TEST_F(HuggingFaceCache, IsLeftAlone) {
  const auto data = Find(folder_ / "snapshots/main/model.onnx");
  ASSERT_OK(data);
  const fs::path output = folder_ / "snapshots/main/model.liger.onnx";
  const auto plan = PlanExternalData(*data, output, ExternalDataMode::kAuto);
  EXPECT_ERROR(plan, ErrorCode::kWrite, HasSubstr("model.onnx.data' is a link to"),
               HasSubstr("ONNX Runtime refuses"));
  EXPECT_THAT(plan.error().hint,
              AllOf(HasSubstr("-o FOLDER/model.liger.onnx"), HasSubstr("--external-data copy")));
  for (const auto mode : {ExternalDataMode::kCopy, ExternalDataMode::kHardlink}) {
    const auto refused = PlanExternalData(*data, output, mode);
    EXPECT_ERROR(refused, ErrorCode::kWrite, HasSubstr("is a link to"));
    EXPECT_THAT(refused.error().hint, HasSubstr("not replaced"));
  }
}

TEST_F(HuggingFaceCache, IsBroughtAlongToAnotherFolder) {
  const auto data = Find(folder_ / "snapshots/main/model.onnx");
  ASSERT_OK(data);
  for (const auto mode : {ExternalDataMode::kCopy, ExternalDataMode::kHardlink}) {
    const auto plan = PlanExternalData(*data, folder_ / "out/model.onnx", mode);
    ASSERT_OK(plan);
    const auto files = ApplyExternalData(*plan);
    ASSERT_OK(files);
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder_ / "out/model.onnx.data")));
    ASSERT_OK(Find(WriteModel(folder_ / "out/model.onnx", TwoWeights("model.onnx.data"))));
    RemoveCreated(*files);
  }
  EXPECT_EQ(ReadFile(folder_ / "blobs/2222"), Payload(32));
}

}  // namespace
}  // namespace liger
