//! Data directories that released versions left, and 0.1.0, which never was released: each later version serves them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::{Server, run};

#[test]
fn the_data_of_each_released_version_is_verified_served_and_written_on() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/released");
    let archives: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!archives.is_empty());
    for archive in archives {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join(".lastword");
        fs::create_dir(&data).unwrap();
        let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&data).status().unwrap();
        assert!(unpacked.success(), "{}", archive.display());
        run(dir.path(), &["verify"]).ok();

        let server = Server::start_in(dir);
        let tree = server.operator(&["tree", "LOGIN-1"]).ok();
        for kept in ["Fix the login form", "Please review the diff", "Looks good.", "Fixed, and reviewed."] {
            assert!(tree.contains(kept), "{kept} is in {tree}");
        }
        // A token that was given out then is valid, and the agent works.
        server.operator(&["stop", "LOGOUT-1"]).ok();
        server.operator(&["ask", "writer", "And now?", "--ref", "AFTER-1", "--wait", "0s"]).ok();
        let writer = data.join("writer.token");
        let as_writer =
            |args: &[&str]| run(server.path(), &[&["--token-file", writer.to_str().unwrap()], args].concat()).ok();
        let taken = as_writer(&["inbox", "--wait", "30s"]);
        assert!(taken.contains("And now?"), "{taken}");
        as_writer(&["finish", taken.split_whitespace().find(|word| word.starts_with("turn-")).unwrap(), "Onward."]);
        assert!(server.operator(&["tree", "AFTER-1"]).ok().contains("Onward."));
        let (code, dir) = server.terminate();
        assert_eq!(code, 0);
        run(dir.path(), &["verify"]).ok();
    }
}
