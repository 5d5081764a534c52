//! The files of a release, in `target/release-files`: the program, its parts list (SBOM), the packages made from it, the
//! SDKs, the documentation's site, the changes, the hashes of all, and their signature.
//!
//! `cargo auditable` embeds the list of crates in the program, so that `cargo audit bin lastword` and scanners read it
//! from the file itself. `cargo cyclonedx` writes the same list as CycloneDX JSON, with licences and hashes. Both come
//! from `Cargo.lock`.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Failed;
use crate::command::{command, command_in, passed};

const FILES: &str = "target/release-files";
/// The one platform that is built here. Its C library is linked statically.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// What `cargo cyclonedx` calls its list, beside each manifest; only that of the program is wanted.
const LIST: &str = "sbom-of-release";
const FEATURES: &str = "cluster,discord";
/// How it is compiled and linked, besides the profile `dist`.
const FLAGS: &[&str] = &[
    "-Ctarget-feature=+crt-static",
    "-Cstrip=symbols",
    // Equal functions are kept once, and what the loader relocates is listed in short.
    "-Clink-arg=-Wl,--icf=all",
    "-Clink-arg=-Wl,-z,pack-relative-relocs",
    // A static program finds the system call without the dynamic linker.
    "--cfg=getrandom_backend=\"linux_getrandom\"",
    // Ends of texts are kept once.
    "-Clink-arg=-Wl,-O2",
    // What level 2 inlines across crates costs megabytes. The crates of level 3 aren't concerned.
    "-Cllvm-args=-inlinedefault-threshold=30",
];
/// Parts of SQLite that nothing here uses.
const WITHOUT: &[&str] =
    &["-USQLITE_ENABLE_FTS3", "-USQLITE_ENABLE_RTREE", "-USQLITE_ENABLE_STAT4", "-USQLITE_ENABLE_LOAD_EXTENSION"];
/// The most bytes that the program has, and that its archive has.
const PROGRAM_BYTES_MAX: u64 = 30_000_000;
const ARCHIVE_BYTES_MAX: u64 = 10_000_000;
/// The variable that names the secret key of minisign.
const KEY: &str = "LASTWORD_RELEASE_KEY";

/// Builds the program, writes the files, and checks them. With `--program`, only builds that.
pub(crate) fn run(args: &[&str]) -> Result<(), Failed> {
    for tool in ["cargo-auditable", "cargo-cyclonedx"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return Err(Failed::new(format!("NOT RELEASED: no {tool} (cargo install {tool} --locked)")));
        }
    }
    let files = Path::new(FILES);
    if files.exists() {
        std::fs::remove_dir_all(files)?;
    }
    std::fs::create_dir_all(files)?;
    build()?;
    let program = files.join("lastword");
    std::fs::copy(format!("target/{TARGET}/dist/lastword"), &program)?;
    small(&program, PROGRAM_BYTES_MAX)?;
    if args == ["--program"] {
        return command_in(files, "sha256sum", &["lastword"]);
    }
    let listed = list();
    remove_lists()?;
    let list = listed?;
    let sbom = files.join("sbom.cdx.json");
    std::fs::write(&sbom, &list)?;
    check(&embedded(files)?, &serde_json::from_str(&list)?)?;
    passed(Command::new("packaging/pack").args([&program, &sbom, files]))?;
    let version = env!("CARGO_PKG_VERSION");
    small(&files.join(format!("lastword-{version}-x86_64-linux.tar.xz")), ARCHIVE_BYTES_MAX)?;
    command(".ci/sdk/run", &["--wheel", FILES])?;
    command(".ci/sdk/typescript", &["--pack", FILES])?;
    command(".ci/site/run", &["--pack", FILES])?;
    let changes = std::fs::read_to_string("CHANGELOG.md")?;
    let changes = changes_of(&changes, version).ok_or_else(|| Failed::new(format!("no changes of {version}")))?;
    std::fs::write(files.join("CHANGES.md"), changes)?;
    command("packaging/test", &[FILES])?;
    command_in(files, "sh", &["-c", "sha256sum * > ../SHA256SUMS && mv ../SHA256SUMS . && cat SHA256SUMS"])?;
    match std::env::var_os(KEY) {
        Some(key) => {
            passed(Command::new("minisign").arg("-S").arg("-s").arg(key).arg("-m").arg(files.join("SHA256SUMS")))
        }
        None => {
            println!("not signed: {KEY} names no key of minisign");
            Ok(())
        }
    }
}

/// Builds the program so that each build of a commit is the same, wherever the clone is.
fn build() -> Result<(), Failed> {
    let here = std::env::current_dir()?;
    let of_user = std::env::home_dir().map(|home| home.join(".cargo"));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(of_user).unwrap_or_default();
    let paths = [(&here, "/lastword"), (&home, "/cargo")].map(|(from, to)| format!("{}={to}", from.display()));
    // No panic passes through C.
    let of_c = paths.iter().map(|path| format!(" -ffile-prefix-map={path}"));
    let of_c = "-fno-asynchronous-unwind-tables".to_owned() + &of_c.collect::<String>();
    let mut cargo = Command::new("cargo");
    cargo.args(["auditable", "build", "--profile", "dist", "--locked", "--package", "lastword-cli"]);
    cargo.args(["--features", FEATURES, "--target", TARGET, "--target-dir", "target"]);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}")).env("CARGO_INCREMENTAL", "0");
    cargo.env("RUSTC_WRAPPER", here.join("packaging/rustc")).env("LASTWORD_PATHS", paths.join("\n"));
    cargo.env("LIBSQLITE3_FLAGS", WITHOUT.join(" ")).env("CFLAGS_x86_64_unknown_linux_gnu", of_c);
    // C that names the time of its build, as mimalloc does, names that of the commit.
    passed(cargo.env("SOURCE_DATE_EPOCH", commit_time()?))
}

/// Fails if a file is larger than it may be.
fn small(file: &Path, most: u64) -> Result<(), Failed> {
    let (bytes, name) = (file.metadata()?.len(), file.display());
    println!("{name} has {:.1} MB of {:.0}", bytes as f64 / 1e6, most as f64 / 1e6);
    if bytes <= most { Ok(()) } else { Err(Failed::new(format!("{name} is larger than {most} bytes"))) }
}

/// Returns the section of a version, without its title.
fn changes_of<'a>(changes: &'a str, version: &str) -> Option<&'a str> {
    let (_, rest) = changes.split_once(&format!("\n## {version}\n"))?;
    Some(rest.split_once("\n## ").map_or(rest, |(section, _)| section).trim_start())
}

/// Returns the time of the commit, in seconds: files that hold a time hold this one.
fn commit_time() -> Result<String, Failed> {
    let commit = Command::new("git").args(["log", "-1", "--format=%ct"]).output()?;
    Ok(String::from_utf8_lossy(&commit.stdout).trim().to_owned())
}

/// Returns the parts list, without this machine's paths.
fn list() -> Result<String, Failed> {
    let mut list = Command::new("cargo");
    list.args(["cyclonedx", "--features", FEATURES, "--format", "json", "--spec-version", "1.5", "--quiet"]);
    list.args(["--manifest-path", "cli/Cargo.toml", "--override-filename", LIST]);
    passed(list.env("SOURCE_DATE_EPOCH", commit_time()?))?;
    let root = format!("path+file://{}/", std::env::current_dir()?.display());
    Ok(std::fs::read_to_string(format!("cli/{LIST}.json"))?.replace(&root, "path+file:///lastword/"))
}

fn remove_lists() -> Result<(), Failed> {
    for entry in std::fs::read_dir(".")? {
        let list = entry?.path().join(format!("{LIST}.json"));
        if list.exists() {
            std::fs::remove_file(list)?;
        }
    }
    Ok(())
}

/// Returns the list that is embedded in the program.
fn embedded(files: &Path) -> Result<Value, Failed> {
    command_in(files, "objcopy", &["--dump-section", ".dep-v0=embedded", "lastword", "copy"])?;
    let mut json = String::new();
    flate2::read::ZlibDecoder::new(&*std::fs::read(files.join("embedded"))?).read_to_string(&mut json)?;
    std::fs::remove_file(files.join("embedded"))?;
    std::fs::remove_file(files.join("copy"))?;
    Ok(serde_json::from_str(&json)?)
}

/// Fails unless the list has every crate that is embedded in the program, and each has a licence.
fn check(embedded: &Value, list: &Value) -> Result<(), Failed> {
    let id = |package: &Value| format!("{} {}", package["name"], package["version"]);
    let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let runs = |package: &Value| package["kind"].as_str().is_none_or(|kind| kind == "runtime");
    let in_program: BTreeSet<String> = all(&embedded["packages"]).iter().filter(|p| runs(p)).map(id).collect();
    let components = all(&list["components"]);
    let listed: BTreeSet<String> = components.iter().chain([&list["metadata"]["component"]]).map(id).collect();
    let missing: Vec<&String> = in_program.difference(&listed).collect();
    if in_program.is_empty() || !missing.is_empty() {
        return Err(Failed::new(format!("in the program and not in the list: {missing:?}")));
    }
    let free = |component: &&Value| all(&component["licenses"]).is_empty();
    let unlicensed: Vec<String> = components.iter().filter(free).map(id).collect();
    if !unlicensed.is_empty() {
        return Err(Failed::new(format!("without a licence: {unlicensed:?}")));
    }
    let (program, list) = (in_program.len(), listed.len());
    println!("{program} crates are in the program, {list} in the list (with those that only build it)");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_changes_are_those_of_the_version_that_is_built() {
        let changes = "# Changes\n\n## 0.3.0\n\nNew.\n\n## 0.2.0\n\nFirst.\n";
        assert_eq!(changes_of(changes, "0.3.0"), Some("New.\n"));
        assert_eq!(changes_of(changes, "0.2.0"), Some("First.\n"));
        assert_eq!(changes_of(changes, "0.2"), None);
    }

    #[test]
    fn a_list_that_lacks_a_crate_or_a_licence_is_refused() {
        let program = json!({ "name": "lastword", "version": "1" });
        let list = |licenses: Value| {
            json!({
                "metadata": { "component": program.clone() },
                "components": [{ "name": "ring", "version": "2", "licenses": licenses }],
            })
        };
        let embedded = |name: &str| json!({ "packages": [program.clone(), { "name": name, "version": "2" }] });
        check(&embedded("ring"), &list(json!(["MIT"]))).unwrap();
        assert!(check(&embedded("ring"), &list(json!([]))).is_err(), "without a licence");
        assert!(check(&embedded("rustls"), &list(json!(["MIT"]))).is_err(), "without a crate of the program");
    }
}
