//! build.rs - finds the library: in the folder LOAM_LIB_DIR, else by pkg-config.
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=LOAM_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rustc-link-lib=dylib=loam");
    if let Ok(folder) = env::var("LOAM_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        return;
    }
    let answer = Command::new("pkg-config").args(["--variable=libdir", "loam"]).output();
    match answer {
        Ok(out) if out.status.success() => {
            println!("cargo:rustc-link-search=native={}", String::from_utf8_lossy(&out.stdout).trim());
        }
        _ => println!(
            "cargo:warning=pkg-config does not find loam: install it, set PKG_CONFIG_PATH, or name \
             the folder of libloam.so by LOAM_LIB_DIR"
        ),
    }
}
