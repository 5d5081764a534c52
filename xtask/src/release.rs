//! The files of a release: the program, its parts list (SBOM), the packages of the SDKs, the documentation's site, and the
//! hashes of all, in `target/release-files`.
//!
//! `cargo auditable` embeds the list of crates in the program, so that `cargo audit bin lastword` and scanners read it
//! from the file itself. `cargo cyclonedx` writes the same list as CycloneDX JSON, with licences and hashes. Both come
//! from `Cargo.lock`.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Failed;
use crate::command::{command, command_in, passed};

const FILES: &str = "target/release-files";
/// What `cargo cyclonedx` calls its list, beside each manifest; only that of the program is wanted.
const LIST: &str = "sbom-of-release";
const FEATURES: &str = "cluster,discord";

/// Builds the program, writes the files, and checks them.
pub(crate) fn run(_: &[&str]) -> Result<(), Failed> {
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
    let build =
        ["auditable", "build", "--profile", "dist", "--locked", "--package", "lastword-cli", "--features", FEATURES];
    command("cargo", &[&build[..], &["--target-dir", "target"]].concat())?;
    std::fs::copy("target/dist/lastword", files.join("lastword"))?;
    let listed = list();
    remove_lists()?;
    let list = listed?;
    std::fs::write(files.join("sbom.cdx.json"), &list)?;
    check(&embedded(files)?, &serde_json::from_str(&list)?)?;
    command(".ci/sdk/run", &["--wheel", FILES])?;
    command(".ci/sdk/typescript", &["--pack", FILES])?;
    command(".ci/site/run", &["--pack", FILES])?;
    command_in(files, "sh", &["-c", "sha256sum lastword sbom.cdx.json *.whl *.tgz >SHA256SUMS && cat SHA256SUMS"])
}

/// Returns the parts list, without this machine's paths.
fn list() -> Result<String, Failed> {
    let commit = Command::new("git").args(["log", "-1", "--format=%ct"]).output()?;
    let time = String::from_utf8_lossy(&commit.stdout);
    let mut list = Command::new("cargo");
    list.args(["cyclonedx", "--features", FEATURES, "--format", "json", "--spec-version", "1.5", "--quiet"]);
    list.args(["--manifest-path", "cli/Cargo.toml", "--override-filename", LIST]);
    passed(list.env("SOURCE_DATE_EPOCH", time.trim()))?;
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
