#include "model/model_file.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>

#include "model/check.h"
#include "model/sha256.h"
#include "model_testing.h"

namespace liger {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_view_literals;

constexpr char kModel[] = R"(
<ir_version: 8, opset_import: ["" : 18], producer_name: "test">
agraph (float[2, 4] x) => (float[2, 4] y)
<float[4] w = {1, 2, 3, 4}>
{
  s = Mul (x, x)
  y = Mul (s, w)
})";

std::string ModelBytes() { return ModelFromText(kModel).SerializeAsString(); }

std::span<const std::byte> AsBytes(const std::string& s) { return std::as_bytes(std::span(s)); }

// --- SHA-256 -------------------------------------------------------------------------------------

TEST(Sha256, GivesTheDigestsOfTheStandard) {
  const std::pair<std::string, const char*> kCases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
  for (const bool portable : {false, true}) {
    for (const auto& [text, digest] : kCases) {
      Sha256 hash(portable);
      hash.Update(text.data(), text.size());
      EXPECT_EQ(hash.HexDigest(), digest);
    }
  }
}

TEST(Sha256, DoesNotDependOnThePiecesOrTheInstructions) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t size = 0; size <= text.size(); ++size) {
    Sha256 whole(/*portable=*/true);
    whole.Update(text.data(), size);
    const std::string expected = whole.HexDigest();
    for (const size_t piece : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{130}}) {
      Sha256 hash;
      for (size_t i = 0; i < size; i += piece) {
        hash.Update(text.data() + i, std::min(piece, size - i));
      }
      ASSERT_EQ(hash.HexDigest(), expected) << size << " in pieces of " << piece;
    }
  }
}

// --- Loading -------------------------------------------------------------------------------------

TEST(LoadModelFile, GivesTheModelItsPathsSizeAndDigest) {
  const TemporaryFolder folder;
  const std::string bytes = ModelBytes();
  WriteFile(folder / "real/model.onnx", bytes);
  fs::create_symlink("real/model.onnx", folder / "link.onnx");

  const auto file = LoadModelFile(folder / "link.onnx");
  ASSERT_OK(file);
  EXPECT_EQ(file->proto.SerializeAsString(), bytes);
  EXPECT_EQ(file->path, folder / "link.onnx");
  EXPECT_EQ(file->real_path, folder / "real/model.onnx");
  EXPECT_EQ(file->folder.given, folder.path());
  EXPECT_EQ(file->folder.real, folder / "real");
  EXPECT_EQ(file->size, static_cast<int64_t>(bytes.size()));
  Sha256 hash;
  hash.Update(bytes.data(), bytes.size());
  EXPECT_EQ(file->sha256, hash.HexDigest());
}

TEST(LoadModelFile, SaysWhatAFileIsThatIsNoModel) {
  const struct {
    const char* name;
    std::string_view bytes;
    const char* message;
    const char* hint;
  } kCases[] = {
      {"empty.onnx", "", "is empty", "again"},
      {"lfs.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
       "is a Git LFS pointer", "git lfs pull"},
      {"text.onnx", "<ir_version: 8, opset_import: [\"\" : 18]>\ng (float[2] x) => (float[2] y) {}",
       "is ONNX text", "onnx.parser.parse_model"},
      {"proto.onnx", "ir_version: 8\ngraph {\n  name: \"g\"\n}\n", "is ONNX text", "textproto"},
      {"json.onnx", "{\"irVersion\": \"8\"}", "is JSON text", "protobuf form"},
      {"page.onnx", "<!DOCTYPE html>\n<html></html>", "is an HTML page", "again"},
      {"notes.onnx", "just some words\n", "is a text file", "protobuf form"},
      {"chinese.onnx", "\xe6\xa8\xa1\xe5\x9e\x8b", "is a text file", "protobuf form"},
      {"model.zip", "PK\x03\x04 and more", "is a zip archive", "ONNX"},
      {"model.gz", "\x1f\x8b\x08 and more", "is a gzip archive", "unpack"},
      {"model.pt", "\x80\x02}q\x00."sv, "is a Python pickle", "export"},
      {"model.gguf", "GGUF\x03\x00\x00\x00"sv, "is a GGUF file", "export"},
      {"model.h5", "\x89HDF\r\n\x1a\n", "is an HDF5 file", "tf2onnx"},
      {"model.ort", "\x20\x00\x00\x00ORTM\x00\x00"sv, "ONNX Runtime's own format", ".onnx"},
      {"model.safetensors", "\x40\x00\x00\x00\x00\x00\x00\x00{\"w\": {}}"sv,
       "is a safetensors file", "export"},
      {"saved_model.pb", "\x08\x01\x12\x04\x0a\x02\x0a\x00"sv, "is a TensorFlow SavedModel",
       "tf2onnx"},
      {"renamed.onnx", "\x08\x01\x12\x04\x0a\x02\x0a\x00"sv, "is a TensorFlow SavedModel",
       "tf2onnx"},
      {"noise.onnx", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "cut off or damaged",
       "again"},
  };
  const TemporaryFolder folder;
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    WriteFile(folder / c.name, c.bytes);
    const auto file = LoadModelFile(folder / c.name);
    EXPECT_ERROR(file, ErrorCode::kInvalidModel, HasSubstr(c.name), HasSubstr(c.message));
    EXPECT_THAT(file.error().hint, HasSubstr(c.hint));
  }
}

TEST(LoadModelFile, SaysWhatIsMissingInAMessageThatParses) {
  const TemporaryFolder folder;
  onnx::TensorProto tensor;
  tensor.add_dims(3);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.set_raw_data(std::string(12, '\x7f'));
  EXPECT_ERROR(LoadModelFile(WriteFile(folder / "input_0.pb", tensor.SerializeAsString())),
               ErrorCode::kInvalidModel, HasSubstr("holds no ONNX graph"));

  onnx::ModelProto model = ModelFromText(kModel);
  model.clear_ir_version();
  EXPECT_ERROR(LoadModelFile(WriteFile(folder / "a.onnx", model.SerializeAsString())),
               ErrorCode::kInvalidModel, HasSubstr("no ir_version"));
  model.set_ir_version(8);
  model.clear_opset_import();
  EXPECT_ERROR(LoadModelFile(WriteFile(folder / "b.onnx", model.SerializeAsString())),
               ErrorCode::kInvalidModel, HasSubstr("imports no operator set"));
}

TEST(LoadModelFile, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  const auto missing = LoadModelFile(folder / "missing.onnx");
  EXPECT_ERROR(missing, ErrorCode::kInvalidModel, HasSubstr("does not exist"));

  fs::create_symlink("gone.onnx", folder / "link.onnx");
  EXPECT_ERROR(LoadModelFile(folder / "link.onnx"), ErrorCode::kInvalidModel,
               HasSubstr("is a link to 'gone.onnx'"));

  WriteFile(folder / "model.onnx", ModelBytes());
  EXPECT_ERROR(LoadModelFile(folder / "model.onnx/x.onnx"), ErrorCode::kInvalidModel,
               HasSubstr("cannot be read"));

  ASSERT_EQ(::mkfifo((folder / "pipe.onnx").c_str(), 0600), 0);
  EXPECT_ERROR(LoadModelFile(folder / "pipe.onnx"), ErrorCode::kInvalidModel,
               HasSubstr("not a regular file"));
}

TEST(LoadModelFile, NamesTheModelsInAFolder) {
  const TemporaryFolder folder;
  const auto empty = LoadModelFile(folder.path());
  EXPECT_ERROR(empty, ErrorCode::kInvalidModel, HasSubstr("is a folder"));

  WriteFile(folder / "b.onnx", "");
  WriteFile(folder / "a.onnx", "");
  WriteFile(folder / "c.txt", "");
  const auto two = LoadModelFile(folder.path());
  EXPECT_ERROR(two, ErrorCode::kInvalidModel, HasSubstr("is a folder"));
  EXPECT_THAT(two.error().hint, HasSubstr("a.onnx, b.onnx"));

  WriteFile(folder / "saved/saved_model.pb", "");
  const auto saved = LoadModelFile(folder / "saved");
  EXPECT_ERROR(saved, ErrorCode::kInvalidModel, HasSubstr("SavedModel"));
  EXPECT_THAT(saved.error().hint, HasSubstr("tf2onnx"));
}

TEST(LoadModelFile, NamesMissingPermissions) {
  const TemporaryFolder folder;
  WriteFile(folder / "model.onnx", ModelBytes());
  ASSERT_EQ(::chmod((folder / "model.onnx").c_str(), 0), 0);
  const Unprivileged user;
  const auto file = LoadModelFile(folder / "model.onnx");
  EXPECT_ERROR(file, ErrorCode::kInvalidModel, HasSubstr("Permission denied"));
  EXPECT_THAT(file.error().hint, HasSubstr("permissions"));
}

TEST(LoadModelFile, RefusesMoreThanTwoGigabytesWithoutReadingThem) {
  const TemporaryFolder folder;
  WriteFile(folder / "big.onnx", ModelBytes());
  ASSERT_EQ(::truncate((folder / "big.onnx").c_str(), off_t{1} << 40), 0);  // a hole
  const auto file = LoadModelFile(folder / "big.onnx");
  EXPECT_ERROR(file, ErrorCode::kInvalidModel, HasSubstr("more than the 2 GiB"));
  EXPECT_THAT(file.error().hint, HasSubstr("external data"));
}

TEST(LoadModelFile, TellsDeepNestingFromDamage) {
  onnx::GraphProto graph = ModelFromText(kModel).graph();
  for (int i = 0; i < 60; ++i) {
    onnx::GraphProto outer;
    outer.set_name("g");
    onnx::AttributeProto* body = outer.add_node()->add_attribute();
    body->set_name("body");
    body->mutable_g()->Swap(&graph);
    outer.mutable_node(0)->set_op_type("Loop");
    graph.Swap(&outer);
  }
  onnx::ModelProto model = ModelFromText(kModel);
  model.mutable_graph()->Swap(&graph);
  const std::string bytes = model.SerializeAsString();
  EXPECT_ERROR(ParseModelBytes(AsBytes(bytes), "."), ErrorCode::kInvalidModel,
               HasSubstr("nests graphs deeper"));
  const TemporaryFolder folder;
  EXPECT_ERROR(LoadModelFile(WriteFile(folder / "deep.onnx", bytes)), ErrorCode::kInvalidModel,
               HasSubstr("nests graphs deeper"));
}

// What comes out of any bytes must be safe for everything that reads models.
void ReadEverything(const std::string& bytes, const fs::path& folder) {
  const auto file = ParseModelBytes(AsBytes(bytes), folder);
  if (!file) {
    EXPECT_EQ(static_cast<int>(file.error().code), static_cast<int>(ErrorCode::kInvalidModel));
    EXPECT_FALSE(file.error().message.empty());
    EXPECT_FALSE(file.error().hint.empty());
    return;
  }
  EXPECT_TRUE(file->proto.has_graph());
  const auto data = FindExternalData(file->proto, file->folder);
  if (data) {
    for (const ExternalFile& f : data->files) EXPECT_TRUE(fs::is_regular_file(f.real_path));
  }
  const auto checked = CheckModel(file->proto, file->proto);
  EXPECT_TRUE(checked) << checked.error().message;  // a model differs in nothing from itself
}

std::string ModelWithEverything() {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
agraph (float[2, 4] x, bool c) => (float[2, 4] y)
<float[4] w = {1, 2, 3, 4}, float[4] e = {0, 0, 0, 0}, int64[2] axes = {0, 1}>
{
  k = Constant <value = float[2] {1, 2}> ()
  s = local.F <a = 1.5> (x, w)
  t = Mul (s, e)
  y = If (c) <
    then_branch = g1 () => (float[2, 4] p) { p = Mul (t, w) },
    else_branch = g2 () => (float[2, 4] q) { q = Neg (t) }
  >
}
<domain: "local", opset_import: ["" : 18]>
F <a> (x, w) => (y) { v = Constant <value_float: float = @a> () u = Mul (x, w) y = Mul (u, v) }
)");
  MakeExternal(*model.mutable_graph()->mutable_initializer(1), "w.bin", {4}, "4", "16");
  auto* sparse = model.mutable_graph()->add_sparse_initializer();
  sparse->mutable_values()->set_name("sparse");
  sparse->mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
  sparse->mutable_values()->add_dims(1);
  sparse->mutable_values()->add_float_data(1);
  sparse->mutable_indices()->set_data_type(onnx::TensorProto::INT64);
  sparse->mutable_indices()->add_dims(1);
  sparse->mutable_indices()->add_int64_data(2);
  sparse->add_dims(4);
  return model.SerializeAsString();
}

TEST(LoadModelFile, SurvivesEveryTruncation) {
  const TemporaryFolder folder;
  WriteFile(folder / "w.bin", std::string(20, 'x'));
  const std::string bytes = ModelWithEverything();
  ASSERT_OK(ParseModelBytes(AsBytes(bytes), folder.path()));
  for (size_t size = 0; size < bytes.size(); ++size) {
    SCOPED_TRACE(size);
    ReadEverything(bytes.substr(0, size), folder.path());
    WriteFile(folder / "cut.onnx", bytes.substr(0, size));
    const auto from_file = LoadModelFile(folder / "cut.onnx");
    const auto from_memory = ParseModelBytes(AsBytes(bytes.substr(0, size)), folder.path());
    EXPECT_EQ(static_cast<bool>(from_file), static_cast<bool>(from_memory));
  }
}

TEST(LoadModelFile, SurvivesEveryDamagedByte) {
  const TemporaryFolder folder;
  WriteFile(folder / "w.bin", std::string(20, 'x'));
  const std::string bytes = ModelWithEverything();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {0x01, 0x08, 0x7f, 0x80, 0xff}) {
      SCOPED_TRACE(std::to_string(i) + " ^ " + std::to_string(flip));
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      ReadEverything(damaged, folder.path());
    }
  }
}

TEST(ParseModelBytes, StartsLocationsFromTheFolderItIsGiven) {
  const TemporaryFolder folder;
  const std::string bytes = ModelBytes();
  const auto file = ParseModelBytes(AsBytes(bytes), folder.path());
  ASSERT_OK(file);
  EXPECT_TRUE(file->path.empty());
  EXPECT_EQ(file->folder.given, folder.path());
  EXPECT_EQ(file->size, static_cast<int64_t>(bytes.size()));
  EXPECT_ERROR(ParseModelBytes({}, folder.path()), ErrorCode::kInvalidModel, HasSubstr("empty"));
}

// --- Saving --------------------------------------------------------------------------------------

TEST(SaveModelFile, WritesTheSameBytesEachTimeAndTellsTheirDigest) {
  const TemporaryFolder folder;
  onnx::ModelProto model = ModelFromText(kModel);
  // A field this version of ONNX does not know: tag 1000, varint 5.
  model.MergeFromString("\xc0\x3e\x05"sv.data());
  const std::string bytes = model.SerializeAsString();
  const auto first = SaveModelFile(model, folder / "a.onnx");
  const auto second = SaveModelFile(model, folder / "b.onnx", {.sync = true});
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ(ReadFile(folder / "a.onnx"), bytes);
  EXPECT_EQ(ReadFile(folder / "b.onnx"), bytes);
  EXPECT_EQ(first->size, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(first->sha256, second->sha256);
  const auto loaded = LoadModelFile(folder / "a.onnx");
  ASSERT_OK(loaded);
  EXPECT_EQ(loaded->sha256, first->sha256);
  EXPECT_EQ(loaded->proto.SerializeAsString(), bytes);
  EXPECT_THAT(Listing(folder.path()), ElementsAre("a.onnx", "b.onnx"));
}

TEST(SaveModelFile, WritesMoreThanOneBufferOfPayload) {
  const TemporaryFolder folder;
  onnx::ModelProto model = ModelFromText(kModel);
  onnx::TensorProto& w = *model.mutable_graph()->mutable_initializer(0);
  w.clear_float_data();
  std::string payload(5'000'001, '\0');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * 31 >> 3);
  w.set_raw_data(payload);
  const auto saved = SaveModelFile(model, folder / "a.onnx");
  ASSERT_OK(saved);
  const auto loaded = LoadModelFile(folder / "a.onnx");
  ASSERT_OK(loaded);
  EXPECT_EQ(loaded->sha256, saved->sha256);
  EXPECT_EQ(loaded->proto.graph().initializer(0).raw_data(), payload);
}

TEST(SaveModelFile, ReplacesALinkAndLeavesWhatItLeadsTo) {
  const TemporaryFolder folder;
  WriteFile(folder / "blobs/one", "content of the cache");
  fs::create_symlink("blobs/one", folder / "model.onnx");
  ASSERT_OK(SaveModelFile(ModelFromText(kModel), folder / "model.onnx"));
  EXPECT_FALSE(fs::is_symlink(folder / "model.onnx"));
  EXPECT_EQ(ReadFile(folder / "model.onnx"), ModelBytes());
  EXPECT_EQ(ReadFile(folder / "blobs/one"), "content of the cache");
}

TEST(SaveModelFile, FollowsTheUmaskAndKeepsThePermissionsOfAnExistingFile) {
  const TemporaryFolder folder;
  const auto permissions = [&](const char* name) {
    return static_cast<int>(fs::status(folder / name).permissions());
  };
  WriteFile(folder / "old.onnx", "x");
  ASSERT_EQ(::chmod((folder / "old.onnx").c_str(), 0664), 0);
  const mode_t before = ::umask(027);
  const auto fresh = SaveModelFile(ModelFromText(kModel), folder / "new.onnx");
  const auto over = SaveModelFile(ModelFromText(kModel), folder / "old.onnx");
  ::umask(before);
  ASSERT_OK(fresh);
  ASSERT_OK(over);
  EXPECT_EQ(permissions("new.onnx"), 0640);
  EXPECT_EQ(permissions("old.onnx"), 0664);
}

TEST(SaveModelFile, SaysWhyAFileCannotBeWritten) {
  const TemporaryFolder folder;
  const onnx::ModelProto model = ModelFromText(kModel);
  const auto missing = SaveModelFile(model, folder / "missing/a.onnx");
  EXPECT_ERROR(missing, ErrorCode::kWrite, HasSubstr("does not exist"));
  EXPECT_THAT(missing.error().hint, HasSubstr("create the folder"));

  fs::create_directory(folder / "sub");
  EXPECT_ERROR(SaveModelFile(model, folder / "sub"), ErrorCode::kWrite, HasSubstr("is a folder"));
  EXPECT_ERROR(SaveModelFile(model, folder / "sub/"), ErrorCode::kWrite,
               HasSubstr("names no file"));
  WriteFile(folder / "file", "x");
  EXPECT_ERROR(SaveModelFile(model, folder / "file/a.onnx"), ErrorCode::kWrite,
               HasSubstr("is not a folder"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(SaveModelFile(model, folder / "pipe"), ErrorCode::kWrite,
               HasSubstr("not a regular file"));
  EXPECT_ERROR(SaveModelFile(model, folder / std::string(300, 'n')), ErrorCode::kWrite,
               HasSubstr("too long"));
  EXPECT_THAT(Listing(folder.path()), ElementsAre("file", "pipe", "sub"));

  ASSERT_EQ(::chmod((folder / "sub").c_str(), 0555), 0);
  const Unprivileged user;
  const auto denied = SaveModelFile(model, folder / "sub/a.onnx");
  EXPECT_ERROR(denied, ErrorCode::kWrite, HasSubstr("Permission denied"));
  EXPECT_THAT(denied.error().hint, HasSubstr("-o"));
}

TEST(SaveModelFile, LeavesTheOldFileAndNothingElseWhenTheDiskGivesUp) {
  const TemporaryFolder folder;
  WriteFile(folder / "model.onnx", "old");
  onnx::ModelProto model = ModelFromText(kModel);
  model.mutable_graph()->mutable_initializer(0)->set_raw_data(std::string(3'000'000, 'x'));

  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit limit = before;
  limit.rlim_cur = 1'500'000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto saved = SaveModelFile(model, folder / "model.onnx");
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);

  EXPECT_ERROR(saved, ErrorCode::kWrite, HasSubstr("File too large"));
  EXPECT_EQ(ReadFile(folder / "model.onnx"), "old");
  EXPECT_THAT(Listing(folder.path()), ElementsAre("model.onnx"));
}

TEST(SameFile, LooksThroughLinks) {
  const TemporaryFolder folder;
  WriteFile(folder / "a", "x");
  WriteFile(folder / "b", "x");
  fs::create_symlink("a", folder / "symlink");
  fs::create_hard_link(folder / "a", folder / "hardlink");
  EXPECT_TRUE(SameFile(folder / "a", folder / "a"));
  EXPECT_TRUE(SameFile(folder / "a", folder.path() / "." / "symlink"));
  EXPECT_TRUE(SameFile(folder / "a", folder / "hardlink"));
  EXPECT_FALSE(SameFile(folder / "a", folder / "b"));
  EXPECT_FALSE(SameFile(folder / "a", folder / "missing"));
}

}  // namespace
}  // namespace liger
