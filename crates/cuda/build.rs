//! Compiles the kernels: as C++ for the twin, and with nvcc for GPUs.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(twin)");
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-changed=twin");
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "twin")]
    twin();
    if std::env::var_os("CARGO_FEATURE_CUDA").is_some() {
        gpu();
    }
}

/// Compute capabilities with machine code in the binary, ascending: that for 8.0 also runs on 8.6
/// and 8.9.
/// For the first and the last there is also PTX, which drivers compile for those in between (10 and
/// 11) and for later ones.
/// `ALARA_CUDA_ARCHS` overrides the list.
const CAPABILITIES: &str = "75 80 90 120";

/// Compiles all kernels, for all capabilities, into one file.
/// Passes on the compiler's errors.
fn gpu() {
    println!("cargo::rerun-if-env-changed=NVCC");
    println!("cargo::rerun-if-env-changed=ALARA_CUDA_ARCHS");
    let out =
        std::path::Path::new(&std::env::var_os("OUT_DIR").expect("cargo sets it")).join("kernels.fatbin");
    let nvcc = std::env::var("NVCC").unwrap_or_else(|_| "nvcc".into());
    let capabilities = std::env::var("ALARA_CUDA_ARCHS").unwrap_or_else(|_| CAPABILITIES.into());
    let mut call = std::process::Command::new(&nvcc);
    call.args(["-std=c++17", "-O3", "-fatbin", "kernels/all.cu", "-o"]).arg(&out);
    for name in capabilities.split_whitespace() {
        call.arg(format!("-gencode=arch=compute_{name},code=sm_{name}"));
    }
    let mut names = capabilities.split_whitespace();
    for name in names.next().into_iter().chain(names.next_back()) {
        call.arg(format!("-gencode=arch=compute_{name},code=compute_{name}"));
    }
    match call.output() {
        Ok(done) if done.status.success() => {}
        Ok(done) => {
            panic!("nvcc: {}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
        }
        Err(error) => panic!("`{nvcc}` can't be run ({error}): scripts/build-cuda brings its own"),
    }
}

/// Sets `cfg(twin)` if there is a C++ compiler.
/// Fibers need `ucontext`, which Linux has.
#[cfg(feature = "twin")]
fn twin() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").file("twin/emulate.cpp").opt_level(1).warnings(true);
    // Fibers jump between stacks, which fortified jumps refuse.
    // No fused multiply-add unless the source uses one explicitly.
    build.flag("-U_FORTIFY_SOURCE").flag("-Wno-unknown-pragmas").flag("-Wno-unused-function");
    build.flag_if_supported("-ffp-contract=off").cargo_warnings(false);
    if build.try_compile("alara_twin").is_ok() {
        println!("cargo::rustc-cfg=twin");
    } else {
        println!(
            "cargo::warning=no C++ compiler: the CUDA kernels' twin isn't built, its tests say so and pass"
        );
    }
}
