#!/usr/bin/env bash
# Installs what the build needs on a Debian 12 machine. Run it again at any time: what is there is kept.
#
#   tools/setup.sh [--lint] [--no-apt]
#
#   --lint     also clang-format and clang-tidy, for tools/test.sh
#   --no-apt   install no Debian package (they are there, or this is not Debian)
#
# Everything that is not a Debian package goes below build/ of the repository: build/venv (Python packages,
# pinned by hash), build/deps/onnx (built from its source distribution, pinned by hash),
# build/deps/onnxruntime/include (headers). LIGER_ORT_INCLUDE_DIR=DIR uses your own ONNX Runtime headers.

. "$(dirname "$(readlink -f "$0")")/lib/common.sh"

onnx_version=1.23.2
ort_headers_version=1.21.0+dfsg-1
ort_headers_suite=trixie
ort_headers_sha256=14f7d959d5deacbcf1504830d4189f91fc67382b399ed9ae9d3aa9c4050ced08

packages=(g++ cmake ninja-build python3 python3-venv ca-certificates
  libprotobuf-dev protobuf-compiler libcli11-dev libyaml-cpp-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev strace)
lint_packages=(clang-format clang-tidy)

use_apt=1
while (($# > 0)); do
  case $1 in
    --lint) packages+=("${lint_packages[@]}") ;;
    --no-apt) use_apt=0 ;;
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown option $1" "tools/setup.sh --help shows what there is" ;;
  esac
  shift
done

by_hand=("Install by hand, then run this again with --no-apt:"
  "  a C++20 compiler (GCC 12 or newer), CMake >= 3.25, Ninja, Python >= 3.11 with venv,"
  "  protobuf 3.21 with headers and protoc, CLI11 >= 2.1, yaml-cpp >= 0.7, nlohmann-json >= 3.11,"
  "  GoogleTest and GoogleMock >= 1.12, strace; for the lint step clang-format and clang-tidy 14.")

# as_root COMMAND...
as_root() { if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi; }

install_debian_packages() {
  ((use_apt)) || return 0
  if ! have apt-get || ! have dpkg-query; then
    fail "this is not a Debian system: there is no apt-get" "${by_hand[@]}"
  fi
  local package missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    say "Debian packages: all ${#packages[@]} are installed"
    return 0
  fi
  say "Debian packages to install: ${missing[*]}"
  if ((EUID != 0)) && ! have sudo; then
    fail "installing packages needs root, and there is no sudo" \
      "As root: apt-get update && apt-get install ${missing[*]}"
  fi
  if ((EUID != 0)) && [[ -t 0 ]]; then sudo -v || true; fi  # asks for the password once, visibly
  quietly "$build/logs/apt-update.log" as_root apt-get update ||
    fail "the package lists could not be updated: is there a network, may this user use sudo?" \
      "By hand: apt-get update && apt-get install ${missing[*]}"
  quietly "$build/logs/apt-install.log" as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" ||
    fail "the packages could not be installed" "${by_hand[@]}"
}

check_tools() {
  local tool
  for tool in g++ cmake ninja protoc python3; do
    have "$tool" || fail "$tool is missing" "${by_hand[@]}"
  done
  local compiler
  compiler=$(g++ -dumpfullversion)
  version_at_least "$compiler" 12 ||
    fail "g++ $compiler is too old: C++20 as used here needs GCC 12" "${by_hand[@]}"
}

# The interpreter for the virtual environment: Debian's own first, whatever PATH puts before it.
find_python() {
  local candidate
  for candidate in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
    if have "$candidate" &&
      "$candidate" -c 'import sys, venv, ensurepip
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

make_virtual_environment() {
  local interpreter stamp
  interpreter=$(find_python) ||
    fail "no Python 3.11 to 3.13 with the venv module was found" "Debian: apt-get install python3-venv"
  stamp="$(sha256_of "$root/tools/requirements.txt") $("$interpreter" -V) $venv"
  if [[ -x $python && $(cat "$venv/.stamp" 2>/dev/null) == "$stamp" ]]; then
    say "virtual environment: build/venv is up to date"
    return 0
  fi
  say "virtual environment: build/venv (cmake, onnx, onnxruntime, numpy; about 60 MB)"
  rm -rf "$venv"
  "$interpreter" -m venv "$venv" || fail "the virtual environment could not be made"
  quietly "$build/logs/pip.log" "$python" -m pip install --require-hashes --only-binary :all: \
    -r "$root/tools/requirements.txt" ||
    fail "the Python packages could not be installed" \
      "Without a network: fill build/cache/wheels and set PIP_FIND_LINKS and PIP_NO_INDEX=1." \
      "A hash that does not match means that the registry serves another file than the pinned one."
  printf '%s\n' "$stamp" >"$venv/.stamp"
}

build_onnx() {
  local archive=$cache/onnx-$onnx_version.tar.gz prefix=$deps/onnx sha256 stamp
  sha256=$(sed -n 's/.*--hash=sha256:\([0-9a-f]*\).*/\1/p' "$root/tools/onnx-source.txt")
  local options=(-DCMAKE_BUILD_TYPE=Release -DONNX_BUILD_PYTHON=OFF
    -DONNX_USE_PROTOBUF_SHARED_LIBS=ON -DONNX_USE_UNITY_BUILD=ON
    -DFETCHCONTENT_FULLY_DISCONNECTED=ON -DCMAKE_POSITION_INDEPENDENT_CODE=ON)
  stamp="onnx $onnx_version $sha256 | g++ $(g++ -dumpfullversion) | $(protoc --version) | ${options[*]}"
  if [[ $(cat "$prefix/.stamp" 2>/dev/null) == "$stamp" ]]; then
    say "ONNX $onnx_version: build/deps/onnx is up to date"
    return 0
  fi

  mkdir -p "$cache" "$deps"
  if ! matches_sha256 "$archive" "$sha256"; then
    say "ONNX $onnx_version: fetch the source distribution (6 MB)"
    # pip asks the build back-end for metadata, which wants a newer CMake on PATH; it builds nothing.
    rm -f "$archive"
    PATH=$venv/bin:$PATH quietly "$build/logs/onnx-fetch.log" "$python" -m pip download \
      --require-hashes --no-deps --no-build-isolation --no-binary onnx -d "$cache" \
      -r "$root/tools/onnx-source.txt" ||
      fail "the source distribution of ONNX $onnx_version could not be fetched" \
        "By hand: put onnx-$onnx_version.tar.gz (sha256 $sha256)" "into $cache"
    matches_sha256 "$archive" "$sha256" ||
      fail "$archive has sha256 $(sha256_of "$archive"), not $sha256"
  fi

  local newer_cmake=cmake
  version_at_least "$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')" 3.26 ||
    newer_cmake=$venv/bin/cmake
  local scratch=$deps/onnx-build
  say "ONNX $onnx_version: build (1 to 3 minutes, $jobs jobs)"
  rm -rf "$scratch" "$prefix"
  mkdir -p "$scratch/source"
  tar -xzf "$archive" -C "$scratch/source" --strip-components=1
  quietly "$build/logs/onnx-configure.log" "$newer_cmake" -S "$scratch/source" \
    -B "$scratch/build" -G Ninja "${options[@]}" || fail "ONNX could not be configured"
  quietly "$build/logs/onnx-build.log" "$newer_cmake" --build "$scratch/build" -j "$jobs" ||
    fail "ONNX could not be built"
  quietly "$build/logs/onnx-install.log" "$newer_cmake" --install "$scratch/build" \
    --prefix "$prefix" || fail "ONNX could not be installed into build/deps/onnx"
  rm -rf "$scratch"
  printf '%s\n' "$stamp" >"$prefix/.stamp"
}

# The mirrors this machine already uses for Debian itself, one URI a line. apt reads its own sources here,
# in whichever format they are written.
debian_mirrors() {
  apt-get indextargets --format '$(ORIGIN)|$(RELEASE)|$(REPO_URI)' 'Identifier: Packages' 2>/dev/null |
    awk -F'|' '($1 == "Debian" || $1 == "$(ORIGIN)") && $2 !~ /security/ && !seen[$3]++ {print $3}'
}

# Fetches one package of a newer Debian release by a private apt configuration: the machine's own stays as it is.
fetch_header_package() {
  local archive=$1 mirror keyring state=$cache/apt
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [[ -f $keyring ]] || fail "$keyring is missing" "apt-get install debian-archive-keyring" \
    "or set LIGER_ORT_INCLUDE_DIR to a folder with onnxruntime_c_api.h"
  while read -r mirror; do
    rm -rf "$state"
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/download"
    : >"$state/status"
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$ort_headers_suite" \
      >"$state/sources.list"
    local apt=(apt-get -o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=/dev/null
      -o "Dir::State=$state" -o "Dir::State::Lists=$state/lists" -o "Dir::State::status=$state/status"
      -o "Dir::Cache=$state/cache" -o "APT::Sandbox::User=$(id -un)" -o Acquire::Languages=none
      -o APT::Architecture=amd64 -o APT::Architectures=amd64)  # headers are the same everywhere
    if quietly "$build/logs/apt-headers.log" "${apt[@]}" update &&
      (cd "$state/download" && quietly "$build/logs/apt-headers.log" "${apt[@]}" download \
        "libonnxruntime-dev=$ort_headers_version"); then
      mv "$state/download"/libonnxruntime-dev_*.deb "$archive"
      rm -rf "$state"
      return 0
    fi
  done < <(debian_mirrors)
  return 1
}

get_ort_headers() {
  local folder=$deps/onnxruntime/include stamp="onnxruntime headers $ort_headers_version $ort_headers_sha256"
  local archive=$cache/libonnxruntime-dev.deb
  if [[ -n ${LIGER_ORT_INCLUDE_DIR:-} ]]; then
    [[ -f $LIGER_ORT_INCLUDE_DIR/onnxruntime_c_api.h ]] ||
      fail "LIGER_ORT_INCLUDE_DIR=$LIGER_ORT_INCLUDE_DIR holds no onnxruntime_c_api.h"
    say "ONNX Runtime headers: $LIGER_ORT_INCLUDE_DIR (LIGER_ORT_INCLUDE_DIR)"
    return 0
  fi
  if [[ -f $folder/onnxruntime_c_api.h && $(cat "$folder/.stamp" 2>/dev/null) == "$stamp" ]]; then
    say "ONNX Runtime headers: build/deps/onnxruntime/include is up to date"
    return 0
  fi
  local own=("Get the headers of ONNX Runtime 1.21 (onnxruntime_c_api.h, onnxruntime_cxx_api.h, ...)"
    "and set LIGER_ORT_INCLUDE_DIR to their folder, or put Debian's package"
    "libonnxruntime-dev $ort_headers_version (sha256 $ort_headers_sha256)" "at $archive.")
  have dpkg || fail "the ONNX Runtime headers come from a Debian package, and there is no dpkg" "${own[@]}"
  mkdir -p "$cache"
  if ! matches_sha256 "$archive" "$ort_headers_sha256"; then
    say "ONNX Runtime headers: fetch Debian's libonnxruntime-dev $ort_headers_version"
    rm -f "$archive"
    fetch_header_package "$archive" ||
      fail "libonnxruntime-dev $ort_headers_version could not be fetched from this machine's Debian mirror" \
        "${own[@]}"
    if ! matches_sha256 "$archive" "$ort_headers_sha256"; then
      local found
      found=$(sha256_of "$archive")
      rm -f "$archive"
      fail "libonnxruntime-dev: sha256 is $found, not $ort_headers_sha256" "${own[@]}"
    fi
  fi
  local scratch=$deps/onnxruntime-unpack
  rm -rf "$scratch" "$folder"
  mkdir -p "$scratch" "$(dirname "$folder")"
  dpkg -x "$archive" "$scratch"
  mv "$scratch/usr/include/onnxruntime" "$folder"
  rm -rf "$scratch"
  printf '%s\n' "$stamp" >"$folder/.stamp"
  say "ONNX Runtime headers: build/deps/onnxruntime/include ($ort_headers_version)"
}

mkdir -p "$build"
exec 9>"$build/.setup.lock"
if ! flock -n 9; then
  say "another set-up is running in this checkout: waiting for it"
  flock 9
fi
install_debian_packages
check_tools
make_virtual_environment
build_onnx
get_ort_headers
say "set-up is complete"
