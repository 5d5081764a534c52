//! The steps of CI: what each runs, after which others, and how much of the machine it takes.

/// A step of CI, as the table has it.
pub(super) struct CiStep {
    /// Its name, also that of the file with its output.
    pub(super) name: &'static str,
    /// The steps above that must have passed.
    pub(super) after: &'static [&'static str],
    /// The command, in words without spaces.
    pub(super) run: &'static str,
    /// What it takes of the processors, in hundredths of one.
    pub(super) load: u32,
    /// Whether it compiles, or must not run beside what does.
    pub(super) compiler: bool,
    /// Whether it runs in the time that all others leave.
    pub(super) idle: bool,
    /// Whether `LASTWORD` names the program with all features to it.
    pub(super) program: bool,
    /// Whether it waits for moments that a busy machine misses, so that it runs once more, alone, if it fails.
    pub(super) again: bool,
    /// The part of its output that is shown when it passes.
    pub(super) show: Show,
}

/// A part of the output of a step that passed.
pub(super) enum Show {
    Nothing,
    /// How many tests there were.
    Tests,
    /// The lines with a text.
    Lines(&'static str),
}

/// What most steps have in common.
pub(super) const STEP: CiStep = CiStep {
    name: "",
    after: &[],
    run: "",
    load: 50,
    compiler: false,
    idle: false,
    program: false,
    again: false,
    show: Show::Nothing,
};
/// Downloads what another step needs, beside the build.
const INSTALL: CiStep = CiStep { load: 0, ..STEP };
/// Compiles, on both processors.
const BUILD: CiStep = CiStep { load: 200, compiler: true, ..STEP };
/// Checks the code, in the time that all others leave.
const CHECK: CiStep = CiStep { load: 0, compiler: true, idle: true, after: &["build"], ..STEP };
/// Runs the program with all features, which the last build kept.
const WHOLE: CiStep = CiStep { program: true, again: true, after: &["build with features"], ..STEP };
/// Runs agent programs with a scripted model, for which they wait most of the time.
const AGENTS: CiStep = CiStep { after: &["build with features", "install agents"], ..WHOLE };

/// Mutates the corpora of the fuzz targets.
const FUZZ: CiStep = CiStep { load: 100, idle: true, after: &["build"], show: Show::Lines(" executions in "), ..STEP };

/// All steps, the preferred ones first.
pub(super) const STEPS: &[CiStep] = &[
    CiStep { name: "format", run: "cargo fmt --all --check", ..STEP },
    CiStep {
        name: "dependencies",
        run: "target/tools/bin/cargo-deny --locked --all-features check --hide-inclusion-graph -D unmatched-skip \
              -D unnecessary-skip -D license-not-encountered bans licenses sources",
        show: Show::Lines(" ok"),
        ..STEP
    },
    CiStep { name: "install agents", run: ".ci/agents/run --install", ..INSTALL },
    CiStep { name: "install browser", run: ".ci/browser/run --install", ..INSTALL },
    CiStep { name: "install site", run: ".ci/site/run --install", after: &["install browser"], ..INSTALL },
    CiStep { name: "install peers", run: ".ci/peers/run --install", ..INSTALL },
    CiStep { name: "install a2a", run: ".ci/a2a/run --install", ..INSTALL },
    CiStep { name: "install sdk", run: ".ci/sdk/run --install", ..INSTALL },
    CiStep { name: "install frameworks", run: ".ci/sdk/frameworks --install", after: &["install sdk"], ..INSTALL },
    CiStep { name: "install packages", run: "packaging/test --install", ..INSTALL },
    CiStep { name: "install typescript", run: ".ci/sdk/typescript --install", ..INSTALL },
    CiStep { name: "install twin", run: ".ci/discord/run --install", ..INSTALL },
    CiStep {
        name: "room",
        run: "rm -rf target/npm-cache",
        after: &[
            "install agents",
            "install browser",
            "install site",
            "install peers",
            "install a2a",
            "install typescript",
            "install twin",
        ],
        ..INSTALL
    },
    CiStep { name: "build", run: "cargo xtask ci-build", load: 100, ..BUILD },
    CiStep { name: "build with features", run: "cargo xtask ci-build --features", after: &["build"], ..BUILD },
    // Three servers of NATS elect in time beside what waits itself, but not beside a compiler. So these come before all that
    // compiles in the time that others leave.
    CiStep {
        name: "cluster",
        run: "env --chdir=cli ../target/ci/cluster",
        load: 100,
        compiler: true,
        show: Show::Tests,
        ..WHOLE
    },
    CiStep { name: "agents", run: ".ci/agents/run --tests", ..AGENTS },
    CiStep {
        name: "browser",
        run: "env LASTWORD_CLICKS=120 .ci/browser/run",
        after: &["build with features", "install browser"],
        show: Show::Lines("# pass"),
        ..WHOLE
    },
    CiStep { name: "agents traced", run: ".ci/agents/run --trace", ..AGENTS },
    CiStep { name: "agents edit", run: ".ci/agents/run --edits claude gemini-acp --runs 1", ..AGENTS },
    // The README's command. Much in it waits for a moment that a busy machine misses: only idle steps run beside it.
    CiStep {
        name: "tests",
        run: "env RUST_TEST_THREADS=4 cargo tests --locked",
        after: &["build with features"],
        load: 180,
        again: true,
        show: Show::Tests,
        ..STEP
    },
    CiStep {
        name: "tests with features",
        run: "env RUST_TEST_THREADS=4 cargo xtask ci-tests",
        after: &["build with features"],
        load: 180,
        again: true,
        show: Show::Tests,
        ..STEP
    },
    CiStep {
        name: "discord",
        run: "env --chdir=cli LASTWORD_BRIDGE_KILLS=15 RUST_TEST_THREADS=4 ../target/ci/discord",
        load: 150,
        show: Show::Tests,
        ..WHOLE
    },
    CiStep {
        name: "twin",
        run: ".ci/discord/run",
        after: &["build with features", "install twin"],
        show: Show::Lines("# pass"),
        ..WHOLE
    },
    CiStep {
        name: "a2a",
        run: ".ci/a2a/run",
        after: &["build with features", "install a2a"],
        show: Show::Lines("a2a "),
        ..WHOLE
    },
    CiStep {
        name: "sdk",
        run: ".ci/sdk/run",
        after: &["build with features", "install sdk"],
        show: Show::Lines(" passed"),
        ..WHOLE
    },
    CiStep {
        name: "site",
        run: ".ci/site/run",
        after: &["build with features", "install site"],
        show: Show::Lines(" pages, "),
        ..WHOLE
    },
    CiStep {
        name: "typescript",
        run: ".ci/sdk/typescript",
        after: &["build with features", "install typescript"],
        show: Show::Lines("pass "),
        ..WHOLE
    },
    CiStep {
        name: "peers",
        run: ".ci/peers/run",
        after: &["build with features", "install peers"],
        show: Show::Lines(""),
        ..WHOLE
    },
    CiStep {
        name: "frameworks",
        run: ".ci/sdk/frameworks",
        load: 100,
        after: &["build with features", "install frameworks"],
        show: Show::Lines(" passed"),
        ..WHOLE
    },
    CiStep {
        name: "packages",
        run: "packaging/test",
        load: 100,
        after: &["build with features", "install packages"],
        show: Show::Lines(": "),
        ..WHOLE
    },
    CiStep { name: "demo", run: "target/ci/lastword demo", show: Show::Lines(" ok"), ..WHOLE },
    // The program has no library, so `--lib` compiles nothing of it: only its features count, with which most libraries are those of
    // the tests. `lastword-alike` would compile the server anew, above a broker with this feature.
    CiStep {
        name: "interleavings",
        run: "cargo test --package lastword-broker --package lastword-cli \
              --features lastword-broker/interleavings,lastword-core/rules-off,tokio/test-util --lib --locked -- interleavings",
        show: Show::Tests,
        ..CHECK
    },
    // As users build it: the features of its own dependencies are enough.
    CiStep { name: "program", run: "cargo check --locked --package lastword-cli", ..CHECK },
    CiStep {
        name: "docs",
        run: "env RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --lib --locked --workspace --exclude lastword-bench \
              --exclude lastword-sim --exclude lastword-sim-core --exclude lastword-sim-witness --exclude lastword-alike \
              --features lastword-cli/cluster,lastword-cli/discord",
        after: &["cluster"],
        ..CHECK
    },
    CiStep { name: "features", run: "cargo xtask ci-features", show: Show::Lines("/"), ..CHECK },
    CiStep { name: "fuzzed", run: "env LASTWORD_FUZZ_SECONDS=2 target/ci/fuzzed --nocapture fuzzed::", ..FUZZ },
    CiStep {
        name: "fuzzed discord",
        run: "env LASTWORD_FUZZ_SECONDS=2 target/ci/fuzzed-discord --nocapture properties::",
        after: &["build with features"],
        ..FUZZ
    },
    CiStep {
        name: "fuzzed config",
        run: "env LASTWORD_FUZZ_SECONDS=2 target/ci/fuzzed-config --nocapture config_property::",
        ..FUZZ
    },
];
