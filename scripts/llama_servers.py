"""What comparisons with llama.cpp share: it is built, its servers are started, asked and ended.

The Python package llama-cpp-python and the server are each built once, in llama.cpp below alara's cache folder.
The package carries the source of both.
They take clang, since gcc 12 miscompiles the AMX code; the server also takes cmake, and ninja or make.
"""
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = "0.3.36"

# Servers of our own are nothing for a proxy.
urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))


def model(port):
    global MODEL
    if MODEL is None:
        MODEL = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models"))["data"][0]["id"]
    return MODEL


MODEL = None


def post(port, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        return json.load(urllib.request.urlopen(request, timeout=600))
    except urllib.error.HTTPError as error:
        sys.exit(f"the server refused: {error.read().decode()[:1000]}")


@contextlib.contextmanager
def running(name, port, command):
    """A server that has loaded its model, until the end of the block."""
    with open(cache() / f"{name}.log", "w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait(port, process, log)
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait(port, process, log):
    """Until the server has loaded its model: both tell at the same path."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log.seek(0)
            sys.exit(f"the server ended:\n{log.read()[-2000:]}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.01)
    sys.exit("the server does not answer")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(base) / "alara" / "llama.cpp"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def python_package(avx2):
    """A Python that has llama.cpp's package, installed if it is not there yet: for what this machine has, or for AVX2 alone."""
    folder = cache() / f"python-{VERSION}{'-avx2' if avx2 else ''}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if complete.exists():
        return str(python)
    cc, cxx = compilers(None)
    if not cc:
        sys.exit("clang is needed to compile llama.cpp; or name a Python that has llama_cpp, with --llama-python")
    options = "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON" if avx2 else ""
    note(f"compiling llama.cpp's Python package{' for AVX2' * avx2}, which takes some ten minutes of a processor")
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    # No cached wheel: that may be of another compiler, or for another machine.
    run([str(python), "-m", "pip", "install", "-q", "--no-cache-dir", "--no-binary", "llama-cpp-python", f"llama-cpp-python=={VERSION}"],
        dict(os.environ, CC=cc, CXX=cxx, CMAKE_ARGS=options))
    complete.touch()
    return str(python)


def compilers(cc):
    """clang for C, the newest unless one is named, and its like for C++."""
    found = cc or shutil.which("clang") or newest_clang()
    return found, found and str(pathlib.Path(found).with_name(pathlib.Path(found).name.replace("clang", "clang++")))


def build(cc):
    """Where llama.cpp's server is, built if it is not there yet."""
    folder = cache()
    built = folder / f"build-{VERSION}"
    server = built / "bin" / "llama-server"
    if server.exists():
        return str(server)
    found, plus = compilers(cc)
    if not found or not shutil.which("cmake"):
        sys.exit("cmake and clang are needed to build llama.cpp's server; or name one that is built, with --llama-server")
    package = folder / f"llama_cpp_python-{VERSION}"
    source = package / "vendor" / "llama.cpp"
    if not source.exists():
        archive = folder / f"llama_cpp_python-{VERSION}.tar.gz"
        if not archive.exists():
            note("downloading the source")
            run([sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps", "-d", str(folder),
                 f"llama-cpp-python=={VERSION}"])
        with tempfile.TemporaryDirectory(dir=folder) as part, tarfile.open(archive) as tar:
            tar.extractall(part, [m for m in tar.getmembers() if "/vendor/llama.cpp/" in m.name], filter="data")
            # Whole, or not there.
            os.rename(pathlib.Path(part) / package.name, package)
    note("building llama.cpp's server, which takes some ten minutes of a processor")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    off = ["LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_APP", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_OPENSSL",
           "LLAMA_CURL"]
    run(["cmake", "-S", str(source), "-B", str(built), *generator, "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_C_COMPILER={found}",
         f"-DCMAKE_CXX_COMPILER={plus}", "-DLLAMA_BUILD_TOOLS=ON", "-DLLAMA_BUILD_SERVER=ON",
         "-DLLAMA_BUILD_COMMON=ON", *[f"-D{name}=OFF" for name in off]])
    run(["nice", "-n", "10", "cmake", "--build", str(built), "--target", "llama-server"])
    return str(server)


def newest_clang():
    names = {int(path.name.removeprefix("clang-")): str(path) for path in pathlib.Path("/usr/bin").glob("clang-[0-9]*")
             if path.name.removeprefix("clang-").isdigit()}
    return names[max(names)] if names else None


def run(command, environment=None):
    if subprocess.run(command, stdout=sys.stderr, env=environment).returncode:
        sys.exit(f"{' '.join(command)} failed")


def note(text):
    print(text, file=sys.stderr, flush=True)
