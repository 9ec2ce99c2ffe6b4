# Sourced by the scripts here: what they need from the machine before they build.

is_debian() {  # is_debian [VERSION]: Debian, of this version if given; without a version Ubuntu and other descendants count as well
  # shellcheck source=/dev/null
  [[ -e /etc/os-release ]] && (
    source /etc/os-release
    if [[ $# -gt 0 ]]; then [[ $ID == debian && ${VERSION_ID:-} == "$1" ]]; else [[ " $ID ${ID_LIKE:-} " == *" debian "* ]]; fi
  )
}

# install_packages PACKAGE...: installs the Debian packages that are not there yet. Where that cannot be done it says what is
# missing and goes on: the tools may be there under another name.
install_packages() {
  local missing=() package as_root=()
  if ! is_debian || ! command -v apt-get >/dev/null; then
    echo "Not a Debian or Ubuntu system. Needed, by Debian's names: $*"
    return
  fi
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  if [[ $(id -u) != 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "Neither root nor sudo here. Missing packages: ${missing[*]}"
      return
    fi
    as_root=(sudo)
  fi
  echo "Installing: ${missing[*]}"
  "${as_root[@]}" apt-get -qq update || true  # old lists may do
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

# amd_targets, nvidia_targets: the GPUs at hand that the library has kernels for, as CMake wants them; nothing if there are none.
amd_targets() {
  [[ -e /dev/kfd ]] || return 0
  { PATH=$PATH:${ROCM_PATH:-/opt/rocm}/bin rocminfo 2>/dev/null || true; } | { grep -owE 'gfx(90a|942|950)' || true; } |
    sort -u | paste -sd ';'
}
nvidia_targets() {
  command -v nvidia-smi >/dev/null || return 0
  { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } |
    awk -F. '/^[0-9]+\.[0-9]+$/ && $1 >= 8 {print $1 $2}' | sort -u | paste -sd ';'
}

nvcc_path() { command -v nvcc || { [[ -x /usr/local/cuda/bin/nvcc ]] && echo /usr/local/cuda/bin/nvcc; }; }

# best_platform: prints HIP with an AMD GPU and ROCm's compiler, CUDA with an NVIDIA GPU and nvcc, else HOST.
best_platform() {
  if [[ -n $(amd_targets) && -x ${ROCM_PATH:-/opt/rocm}/bin/hipcc ]]; then
    echo HIP
  elif [[ -n $(nvidia_targets) ]] && nvcc_path >/dev/null; then
    echo CUDA
  else
    echo HOST
  fi
}

# platform_options PLATFORM: CMake's options for it, one a line. Only the GPUs at hand are compiled for, which is fastest; with none
# at hand CMake's defaults hold.
platform_options() {
  local targets=""
  echo "-DHPA_PLATFORM=$1"
  case $1 in
    HIP)
      targets=$(amd_targets)
      if [[ -x ${ROCM_PATH:-/opt/rocm}/llvm/bin/clang++ ]]; then
        echo "-DCMAKE_HIP_COMPILER=${ROCM_PATH:-/opt/rocm}/llvm/bin/clang++"
      fi
      ;;
    CUDA)
      targets=$(nvidia_targets)
      if nvcc_path >/dev/null; then echo "-DCMAKE_CUDA_COMPILER=$(nvcc_path)"; fi
      ;;
  esac
  if [[ -n $targets ]]; then echo "-DCMAKE_$1_ARCHITECTURES=$targets"; fi
}

# build_program FOLDER TARGET CMAKE_OPTION...: configures, with Ninja if it is there, and builds the target.
build_program() {
  local folder=$1 target=$2 generator=()
  shift 2
  if [[ ! -e $folder/CMakeCache.txt ]] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
  cmake -S . -B "$folder" "${generator[@]}" "$@" && cmake --build "$folder" --target "$target" --parallel "$(build_jobs)"
}

build_jobs() {  # one compiler a core, each with 2 GiB of memory
  local cores by_memory
  cores=$(nproc)
  by_memory=$(awk '/MemAvailable/ {print int($2 / 2097152)}' /proc/meminfo)
  echo $((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
}
