// Text from a model or a file system, written so that a format takes it as text and nothing else.
//
//   "<failure message=\"" + XmlText(miss.reason) + "\"/>"
//   "::warning title=" + GitHubProperty(title) + "::" + GitHubMessage(miss.reason)
//
// Names in a model may hold anything: quotes, newlines, escape sequences, bytes that are no UTF-8.
// Every function gives valid UTF-8, and never fails. What a reader cannot see stands there as \n, \x1b
// or \u202e unless the format has its own way to write it; bytes that are no character as U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace liger {

// Each byte that belongs to no character becomes U+FFFD; the rest stays.
std::string ValidUtf8(std::string_view text);

// On one line of a terminal or a log: no control characters, none that turn the order of text.
std::string Printable(std::string_view text);

// Between XML tags and between the quotes of an XML attribute.
std::string XmlText(std::string_view text);

// In a paragraph, a list or a table cell of GitHub's Markdown: no markup, no HTML, no mention.
std::string MarkdownText(std::string_view text);

// The same as code, with its delimiters. Names over 200 bytes lose their middle.
std::string MarkdownCode(std::string_view text);

// A fenced block of these lines; its fence is longer than any in them.
std::string MarkdownBlock(const std::string& lines, std::string_view language);

// What follows the second `::` of a workflow command, and the value of a property before it.
std::string GitHubMessage(std::string_view text);
std::string GitHubProperty(std::string_view text);

// A file as a URI reference: "a b.onnx" is "a%20b.onnx", "/m.onnx" is "file:///m.onnx".
std::string FileUri(std::string_view path);

}  // namespace liger
