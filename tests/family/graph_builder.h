// Small models for tests: nodes with nothing but what names them.
//
//   ModelBuilder m;
//   m.TorchNode({"", "model", "model.norm"}, {"W", "pkg.Model", "pkg.Norm"});
//   m.Initializer("model.norm.weight");
//   InferFamily(m.model, "", registry);
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/graph.h"

namespace liger {

// ['a', 'b'] as Python prints it.
inline std::string PythonList(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) {
    if (text.size() > 1) text += ", ";
    text += "'" + item + "'";
  }
  return text + "]";
}

// A node as torch's dynamo exporter annotates it; the FX node and its op are added at the end.
inline Node TorchNode(std::vector<std::string> paths, std::vector<std::string> classes,
                      const std::string& op_type = "Mul") {
  paths.push_back("mul_1");
  classes.push_back("aten.mul.Tensor");
  Node node;
  node.name = "node_mul_1";
  node.op_type = op_type;
  node.metadata = {{"pkg.torch.onnx.class_hierarchy", PythonList(classes)},
                   {"pkg.torch.onnx.name_scopes", PythonList(paths)}};
  return node;
}

inline Node NamedNode(std::string name, std::string op_type = "Mul") {
  Node node;
  node.name = std::move(name);
  node.op_type = std::move(op_type);
  return node;
}

struct ModelBuilder {
  GraphModel model;

  ModelBuilder() { AddGraph(kNone); }

  int AddGraph(int parent) {
    const int index = static_cast<int>(model.graphs.size());
    model.graphs.emplace_back();
    model.graphs.back().index = index;
    model.graphs.back().parent = parent;
    return index;
  }
  void Add(Node node, int graph = 0) {
    model.graphs[static_cast<size_t>(graph)].nodes.push_back(std::move(node));
  }
  void Initializer(std::string name, bool is_used = true) {
    Value value;
    value.name = std::move(name);
    value.is_initializer = true;
    if (is_used) value.users = {0};
    model.graphs[0].values.push_back(std::move(value));
  }
};

}  // namespace liger
