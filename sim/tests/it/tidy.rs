//! Tests that read documents and manifests, so that these can't drift from the code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lastword_facts::Code;
use lastword_facts::guards::GUARDS;
use lastword_facts::limits::{LIMITS, Limits, Profile};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Returns the folders of all crates.
fn members() -> Vec<String> {
    let workspace: toml::Table = read("Cargo.toml").parse().unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    members.iter().map(|member| member.as_str().unwrap().to_owned()).collect()
}

/// Returns every source file of the project.
pub(crate) fn sources() -> Vec<String> {
    members().iter().flat_map(|folder| files(folder)).map(|(_, source)| source).collect()
}

/// Returns the source files of a crate.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let source = std::fs::read_to_string(&path).unwrap();
                found.push((path, source));
            }
        }
    }
    found
}

#[test]
fn every_rule_names_a_proof_that_exists() {
    let table = read("docs/rules.md");
    let sources = sources();
    let mut rules = BTreeSet::new();
    let (table, _) = table.split_once("\n## ").unwrap();
    for row in table.lines().filter(|l| l.starts_with("| ") && l.matches('|').count() == 4) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (rule, proofs) = (cells[1], cells[3]);
        if rule == "rule" {
            continue;
        }
        rules.insert(rule.to_owned());
        assert!(!proofs.is_empty(), "{rule} has no proof");
        for proof in proofs.split_whitespace() {
            match proof.split_once(':') {
                Some(("transcript", name)) => {
                    let path = root().join(format!("core/testdata/transcripts/{name}.txt"));
                    assert!(path.exists(), "{rule}: there is no transcript {name}");
                }
                Some(("test", name)) => {
                    let function = format!("fn {name}(");
                    assert!(sources.iter().any(|s| s.contains(&function)), "{rule}: there is no test {name}");
                }
                _ => panic!("{rule}: what is {proof}?"),
            }
        }
    }
    let named =
        GUARDS.iter().map(|g| g.rule).chain(LIMITS.iter().map(|l| l.rule)).chain(Code::ALL.iter().map(|c| c.rule()));
    for rule in named {
        assert!(rules.contains(rule), "{rule} is named in the code and missing in docs/rules.md");
    }
}

/// The names of tests in a document are sentences: words in backticks with three underscores or more. Returns how many
/// there are. Limits and metrics have such names, too.
fn check_named_tests(path: &str, sources: &[String]) -> usize {
    let others: BTreeSet<&str> = LIMITS.iter().map(|limit| limit.name).collect();
    let document = read(path);
    let quoted = document.split('`').skip(1).step_by(2);
    let is_sentence = |word: &&str| {
        word.matches('_').count() >= 3
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && !others.contains(word)
            && !word.starts_with("lastword_")
    };
    let named: Vec<&str> = quoted.filter(is_sentence).collect();
    for test in &named {
        assert!(sources.iter().any(|s| s.contains(&format!("fn {test}("))), "{path}: there is no test {test}");
    }
    named.len()
}

#[test]
fn every_claim_of_the_architecture_names_tests_that_exist() {
    assert!(check_named_tests("ARCHITECTURE.md", &sources()) > 40, "the tests are named");
}

#[test]
fn every_promise_of_security_and_every_campaign_names_tests_that_exist() {
    let sources = sources();
    for (path, least) in [("docs/security.md", 25), ("docs/reliability.md", 30), ("docs/no-progress.md", 1)] {
        assert!(check_named_tests(path, &sources) >= least, "{path} names its tests");
    }
    let document = read("docs/security.md");
    let (_, promises) = document.split_once("\n## Promises\n").unwrap();
    let (promises, _) = promises.split_once("\n## ").unwrap();
    for row in promises.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let proof = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        assert!(proof.contains("_") && !proof.contains("]("), "a promise without a test: {row}");
    }
}

/// The numbers of the worked examples that are played; 20 is about a guard that does not exist.
#[test]
fn each_worked_example_has_a_transcript_of_its_number() {
    let folder = std::fs::read_dir(root().join("core/testdata/transcripts")).unwrap();
    let names: Vec<String> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for number in (1..=21).filter(|number| *number != 20) {
        let start = format!("example-{number:02}-");
        assert!(names.iter().any(|name| name.starts_with(&start)), "no transcript {start}");
    }
}

#[test]
fn the_incidents_of_the_table_are_the_transcripts_and_need_what_it_says() {
    let table = read("docs/rules.md");
    let (_, incidents) = table.split_once("## Incidents").unwrap();
    let sources = sources();
    let mut told = BTreeSet::new();
    for row in incidents.lines().filter(|l| l.starts_with("| ") && !l.contains("what happened")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if cells[2].starts_with("test:") {
            for test in cells[2].split_whitespace().map(|t| t.trim_start_matches("test:")) {
                assert!(sources.iter().any(|s| s.contains(&format!("fn {test}("))), "there is no test {test}");
            }
            continue;
        }
        let script = read(&format!("core/testdata/transcripts/{}.txt", cells[2]));
        let lines = script.lines().filter_map(|l| l.strip_prefix("# needs:"));
        let needs = lines.flat_map(|l| l.split('(').next().unwrap_or_default().split_whitespace());
        let needs: Vec<String> = needs.map(|n| format!("`{n}`")).collect();
        assert_eq!(cells[3], needs.join(" "), "{}", cells[2]);
        told.insert(format!("{}.txt", cells[2]));
    }
    let folder = std::fs::read_dir(root().join("core/testdata/transcripts")).unwrap();
    let all = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let untold: Vec<String> = all.filter(|n| n.starts_with("incident-") && !told.contains(n)).collect();
    assert!(untold.is_empty(), "docs/rules.md doesn't tell of {untold:?}");
    assert!(told.len() > 20);
}

#[test]
fn a_rule_can_be_off_in_the_tests_of_the_core_and_the_simulator_only() {
    for folder in members() {
        let manifest: toml::Table = read(&format!("{folder}/Cargo.toml")).parse().unwrap();
        for (section, _) in manifest.iter().filter(|(_, s)| s.to_string().contains("rules-off")) {
            let may = match folder.as_str() {
                "core" => section == "dev-dependencies" || section == "features",
                folder => folder == "alike" && section == "dependencies",
            };
            assert!(may, "{folder} has rules-off in [{section}]");
        }
    }
    let features = read("core/Cargo.toml").parse::<toml::Table>().unwrap();
    assert!(features["features"].get("default").is_none(), "a default feature could bring rules-off with it");
}

/// A manifest of the simulator's copies has what the original needs, and no guard is missing there.
#[test]
fn the_simulators_copies_have_the_dependencies_of_the_originals() {
    for name in ["core", "witness"] {
        let [copy, original] = [format!("sim/{name}"), name.to_owned()]
            .map(|folder| -> toml::Table { read(&format!("{folder}/Cargo.toml")).parse().unwrap() });
        let needed =
            original["dependencies"].as_table().unwrap().iter().filter(|(_, how)| how.get("optional").is_none());
        assert!(needed.eq(copy["dependencies"].as_table().unwrap()), "sim/{name}/Cargo.toml");
    }
}

/// `doctest = false` saves the start of a compiler for each crate without one.
#[test]
fn a_crate_whose_documentation_has_code_runs_it() {
    let (mut some, mut none) = (0, 0);
    for folder in members() {
        let manifest: toml::Table = read(&format!("{folder}/Cargo.toml")).parse().unwrap();
        let runs =
            manifest.get("lib").and_then(|lib| lib.get("doctest")).and_then(toml::Value::as_bool).unwrap_or(true);
        let sources = files(&folder).into_iter().filter(|(path, _)| path.starts_with(root().join(&folder).join("src")));
        let has = sources.map(|(_, source)| source).any(|source| has_doctest(&source));
        let is_program = manifest.contains_key("bin") || folder == "xtask";
        assert!(is_program || runs == has, "{folder}: doctest = {has} in [lib]");
        (some, none) = (some + usize::from(has), none + usize::from(!has));
    }
    assert!(some > 2 && none > 10, "{some} with code, {none} without");
}

/// Whether the documentation of a file has code that is compiled.
fn has_doctest(source: &str) -> bool {
    let mut fences = source.lines().filter_map(|line| {
        let text = line.trim_start();
        text.strip_prefix("//!").or_else(|| text.strip_prefix("///"))?.trim_start().strip_prefix("```")
    });
    // Each second fence ends what the one before it began.
    std::iter::from_fn(|| Some((fences.next()?, fences.next()).0)).any(|words| words.trim() != "text")
}

/// The manifest keeps it from the core (`crates_depend_only_along_the_arrows`); the bounds stand beside the limits.
#[test]
fn the_witness_counts_by_itself() {
    for file in std::fs::read_dir(root().join("witness/src")).unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!source.contains("potential(") && !source.contains("bound_"), "{source}");
    }
}

#[test]
fn every_dependency_has_its_row_and_none_is_unused() {
    let workspace: toml::Table = read("Cargo.toml").parse().unwrap();
    let all = workspace["workspace"]["dependencies"].as_table().unwrap();
    let names: BTreeSet<&str> = all.keys().map(String::as_str).filter(|name| !name.starts_with("lastword-")).collect();
    let document = read("docs/dependencies.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<BTreeSet<_>>(), names, "docs/dependencies.md and Cargo.toml");
    let manifests: Vec<String> = members().iter().map(|folder| read(&format!("{folder}/Cargo.toml"))).collect();
    for name in names {
        let uses = |manifest: &String| manifest.lines().any(|l| l.split(['.', ' ', '=']).next() == Some(name));
        assert!(manifests.iter().any(uses), "no crate uses {name}");
    }
}

#[test]
fn the_limits_document_is_the_table_in_the_code() {
    let mut text = String::from(
        "# Limits\n\nThe limits of the protocol, generated from the table in `facts/src/limits.rs`. Set them in `lastword.toml`, section\n\
         `[limits]`, or on the console's page *Limits*; the last word of a name is its unit.\n\n| limit | default | rule | what it bounds |\n|---|---|---|---|\n",
    );
    for row in LIMITS {
        writeln!(text, "| `{}` | {} | {} | {} |", row.name, row.default, row.rule, row.meaning).unwrap();
    }
    writeln!(text, "\n## Profiles\n\n`profile = \"long\"` in `lastword.toml` starts from these limits instead of the defaults above, for teams that work\nthrough many rounds (R6). What is set by hand wins.\n\n| limit or guard | `strict`, the default | `long` |\n|---|---|---|").unwrap();
    let (strict, long) = (Limits::of(Profile::Strict), Limits::of(Profile::Long));
    for row in LIMITS.iter().filter(|row| strict.value(row.name) != long.value(row.name)) {
        let value = |limits: &Limits| limits.value(row.name).unwrap();
        writeln!(text, "| `{}` | {} | {} |", row.name, value(&strict), value(&long)).unwrap();
    }
    let mode = |limits: &Limits, name: &str| if limits.observed.observes(name) { "observe" } else { "enforce" };
    for guard in GUARDS.iter().filter(|guard| mode(&strict, guard.name) != mode(&long, guard.name)) {
        writeln!(text, "| `{}` | {} | {} |", guard.name, mode(&strict, guard.name), mode(&long, guard.name)).unwrap();
    }
    writeln!(text, "\n## Guards\n\nIn the order in which they are checked. A guard that can be observed may be listed in `observe`: it then records the\nmessages that it would have refused, and admits them. `enforce` lists guards that would only observe otherwise.\n\n| guard | rule | can be observed | applies to humans |\n|---|---|---|---|").unwrap();
    for guard in GUARDS {
        let yes = |b: bool| if b { "yes" } else { "no" };
        let observable = if guard.observed { "yes, by default" } else { yes(guard.observable) };
        writeln!(text, "| `{}` | {} | {observable} | {} |", guard.name, guard.rule, yes(guard.humans)).unwrap();
    }
    check("docs/limits.md", &text);
}

pub(crate) fn check(path: &str, actual: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(root().join(path), actual).unwrap();
    }
    let expected = read(path);
    if let Some((number, (old, new))) =
        (1..).zip(expected.lines().zip(actual.lines())).find(|(_, (old, new))| old != new)
    {
        panic!("{path}, line {number}: UPDATE=1 rewrites it\n  there    {old}\n  expected {new}");
    }
    assert!(
        expected == actual,
        "{path} ends where it should go on, or goes on where it should end: UPDATE=1 rewrites it"
    );
}

#[test]
fn the_guards_are_asked_in_the_agreed_order() {
    let place = |name: &str| GUARDS.iter().position(|g| g.name == name).unwrap();
    let order = [
        "from_mismatch",
        "turns_soft",
        "stopped",
        "unknown_recipient",
        "reply_not_expected",
        "passive_reply",
        "depth_cap",
        "pair_rate",
        "grant_messages",
        "budget",
    ];
    assert!(
        order.windows(2).all(|w| place(w[0]) < place(w[1])),
        "identity, counting, holding, addressing, type, causality, windows, totals"
    );
}

#[test]
fn crates_depend_only_along_the_arrows() {
    let shipped: &[&str] = &[
        "facts",
        "core",
        "witness",
        "replay",
        "wire",
        "store",
        "broker",
        "server",
        "mcp",
        "a2a",
        "telemetry",
        "console",
        "client",
        "programs",
        "bridge",
        "discord",
        "cluster",
    ];
    let allowed: &[(&str, &[&str])] = &[
        ("facts", &[]),
        ("core", &["facts"]),
        // It shares the facts with the core, and none of its bookkeeping.
        ("witness", &["facts"]),
        ("replay", &["facts", "core"]),
        ("wire", &["facts"]),
        ("store", &["facts"]),
        ("broker", &["facts", "core", "wire", "store"]),
        ("server", &["facts", "core", "wire", "store", "broker"]),
        // MCP over stdio is a client of a running server.
        ("mcp", &["facts", "core", "wire", "broker", "server", "client"]),
        ("a2a", &["facts", "core", "wire", "store", "broker", "server"]),
        ("telemetry", &["facts", "wire", "broker", "server"]),
        ("console", &["facts", "core", "wire", "store", "broker", "server"]),
        ("client", &["facts", "wire"]),
        ("programs", &["facts", "wire", "client"]),
        ("bridge", &["facts", "wire", "client"]),
        ("discord", &["facts", "client", "bridge"]),
        // A node is a client of the others.
        ("cluster", &["facts", "core", "wire", "store", "broker", "server", "client"]),
        ("cli", shipped),
        (
            "bench",
            &[
                "facts", "core", "wire", "store", "broker", "server", "mcp", "console", "client", "programs", "bridge",
                "discord", "cluster",
            ],
        ),
        ("sim", shipped),
        ("alike", &["core", "server", "mcp", "a2a"]),
        ("xtask", &[]),
    ];
    assert!(members().iter().map(String::as_str).eq(allowed.iter().map(|(folder, _)| *folder)));
    for (folder, may) in allowed {
        let manifest: toml::Table = read(&format!("{folder}/Cargo.toml")).parse().unwrap();
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        for name in dependencies.keys().filter_map(|d| d.strip_prefix("lastword-")) {
            assert!(may.contains(&name), "{folder} must not see {name}: it could get round a guard");
        }
    }
}

/// The modules of a crate by layer, the lowest first. A module imports only from lower layers.
type Layers = &'static [&'static [&'static str]];

const BROKER_LAYERS: Layers = &[
    &["files"],
    &["clock", "disk", "handover", "identity", "metrics", "priority", "sync", "unserved"],
    &["checkpoint"],
    BROKER_THREADS,
    &["archive", "scrub"],
    &["lib"],
];

/// What the judge, the writer and their callers share. These modules name one another.
const BROKER_THREADS: &[&str] = &[
    "boot",
    "faults",
    "handle",
    "holders",
    "judge",
    "keeper",
    "live",
    "queue",
    "reads",
    "receiving",
    "recent",
    "wakes",
    "writer",
];

const SERVER_LAYERS: Layers = &[
    &["attempts", "base_path", "cloud_event", "cron", "error", "tls", "trace"],
    &["kept", "oidc", "origins"],
    &["backup", "views"],
    &["passkeys"],
    &["console"],
    &["calls"],
    &["edges", "notify"],
    &["workspace"],
    &["properties", "server"],
    &["lib"],
];

/// Returns the top-level modules that a line of code names: `crate::calls`, or as many `super::` as lead to the root.
fn named_modules(line: &str, depth: usize) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    let from_root = code.split("crate::").skip(1);
    let up = "super::".repeat(depth);
    let from_here = code.split(up.as_str()).skip(1).filter(|rest| !rest.starts_with("super::"));
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>();
    from_root.chain(from_here).map(name).collect()
}

/// Returns the imports of a crate's modules from their own layer or a higher one, and how many imports there are.
fn wrong_imports(folder: &str, layers: Layers) -> (BTreeSet<String>, usize) {
    let layer = |module: &str| {
        let found = layers.iter().position(|layer| layer.contains(&module));
        found.unwrap_or_else(|| panic!("the module {module} of {folder} is in no layer"))
    };
    let together = |one: &str, other: &str| BROKER_THREADS.contains(&one) && BROKER_THREADS.contains(&other);
    let (src, mut wrong, mut imports) = (root().join(folder).join("src"), BTreeSet::new(), 0);
    for (path, source) in files(folder) {
        let Ok(inside) = path.strip_prefix(&src) else { continue };
        let parts: Vec<String> =
            inside.with_extension("").components().map(|c| c.as_os_str().to_str().unwrap().to_owned()).collect();
        let module = &parts[0];
        if module.ends_with("_tests") {
            continue;
        }
        let shipped = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for named in shipped.lines().flat_map(|line| named_modules(line, parts.len())) {
            assert!(!named.is_empty(), "{}: a list of modules in one `use` hides them", inside.display());
            imports += usize::from(named != *module);
            if named != *module && layer(&named) >= layer(module) && !together(&named, module) {
                wrong.insert(format!("{folder}: {} -> {named}", inside.display()));
            }
        }
    }
    (wrong, imports)
}

/// The most lines of a source file (`STYLE.md`).
const FILE_LINES_MAX: usize = 600;

#[test]
fn no_source_file_is_longer_than_the_style_allows() {
    let folders = members().into_iter().chain(["fuzz".to_owned()]);
    let all: Vec<(PathBuf, String)> = folders.flat_map(|folder| files(&folder)).collect();
    assert!(all.len() > 900, "the sources are found");
    let long: Vec<(&PathBuf, usize)> =
        all.iter().map(|(path, source)| (path, source.lines().count())).filter(|(_, n)| *n > FILE_LINES_MAX).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn modules_import_from_lower_layers_only() {
    let ((of_broker, in_broker), (of_server, in_server)) =
        (wrong_imports("broker", BROKER_LAYERS), wrong_imports("server", SERVER_LAYERS));
    assert!(in_broker > 50 && in_server > 100, "imports are found");
    assert!(of_broker.is_empty(), "the broker's threads, and what follows them: {of_broker:#?}");
    assert!(of_server.is_empty(), "edges -> calls -> views, and never back: {of_server:#?}");
    let reads = files("console/src/reads");
    assert!(reads.len() > 5, "what the pages read is found");
    let upwards = |(_, source): &&(PathBuf, String)| source.contains("crate::") || source.contains("super::super");
    let wrong: Vec<&PathBuf> = reads.iter().filter(upwards).map(|(path, _)| path).collect();
    assert!(wrong.is_empty(), "the console's pages -> reads, and never back: {wrong:#?}");
}

/// What differs from platform to platform is the platform's: its names, and what its ids are made of.
#[test]
fn the_bridge_names_no_platform_and_looks_into_no_id() {
    let sources = files("bridge");
    assert!(sources.len() > 30, "the sources of the bridge are found");
    for (path, source) in sources {
        let shipped = source.split("#[cfg(test)]").next().unwrap_or_default().to_lowercase();
        for word in ["discord", "twilight", "slack", "snowflake", ".number()"] {
            assert!(!shipped.contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn no_module_but_the_list_names_an_agent_program() {
    let (list, launchers) = (root().join("programs/src"), root().join("cli/src/commands"));
    let mut seen = 0;
    for (path, source) in ["programs/src", "cli/src"].into_iter().flat_map(files) {
        let shipped = source.split("#[cfg(test)]").next().unwrap_or_default();
        for name in ["claude", "codex", "gemini", "opencode"] {
            let own =
                [list.join(name), launchers.join(name)].iter().any(|own| path.with_extension("").starts_with(own));
            let names =
                ["crate", "lastword_programs"].iter().any(|root| shipped.contains(&format!("{root}::{name}::")));
            assert!(!names || own || path == list.join("program.rs"), "{} names {name}", path.display());
            seen += usize::from(names);
        }
    }
    assert!(seen >= 8, "the list and the launchers name them: {seen}");
}

#[test]
fn everything_that_is_published_has_the_version_of_the_workspace() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(read("sdk/python/pyproject.toml").contains(&format!("\nversion = \"{version}\"\n")));
    assert!(read("sdk/typescript/package.json").contains(&format!("\n  \"version\": \"{version}\",\n")));
    for page in ["docs/install.md", "docs/service.md"] {
        let text = read(page);
        let after =
            ["lastword_", "lastword-", "lastword:", "chart-"].iter().flat_map(|before| text.split(before).skip(1));
        let number = |rest: &str| rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>();
        let named: Vec<String> = after.map(number).filter(|number| !number.is_empty()).collect();
        assert!(
            named.len() > 2 && named.iter().all(|number| number.trim_end_matches('.') == version),
            "{page}: {named:?}"
        );
    }
}

#[test]
fn nothing_in_the_project_refers_to_what_a_clone_does_not_have() {
    let words = ["../sha".to_owned() + "red", "issue ".to_owned() + "#"];
    for text in
        sources().into_iter().chain(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/rules.md"].map(read))
    {
        for word in &words {
            assert!(!text.contains(word.as_str()), "a file refers to {word}");
        }
    }
}
