// Writes every sample in every format into a folder: `report_samples FOLDER`.

#include <filesystem>
#include <fstream>
#include <iostream>

#include "report/formats.h"
#include "samples.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  for (const liger::Sample& sample : liger::Samples()) {
    for (const char* name : {"text", "json", "md", "junit", "sarif", "github"}) {
      const auto format = liger::ParseReportFormat(name);
      std::ofstream file(folder / (sample.name + "." + name), std::ios::binary);
      file << liger::Render(*format, sample.reports, {});
      if (!file) {
        std::cerr << "cannot write " << sample.name << "." << name << "\n";
        return 1;
      }
    }
  }
  return 0;
}
