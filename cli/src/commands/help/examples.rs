//! The examples that the help shows.

/// Examples by command, at least two each. A command with verbs also shows the first example of each verb.
pub(super) const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "lastword demo",
            "lastword serve",
            "lastword agent add coder > coder.token",
            "lastword ask coder \"Fix the login form\" --ref LOGIN-1",
            "lastword top",
        ],
    ),
    (
        "init",
        &[
            "lastword init",
            "lastword --token-file coder.token init --claude --dry-run",
            "lastword init --codex --from-env",
            "lastword init --claude --check",
        ],
    ),
    ("serve", &["lastword serve", "lastword serve --listen 127.0.0.1:8080 --host lastword.example --with-agents"]),
    ("demo", &["lastword demo", "lastword demo --keep"]),
    ("agent", &[]),
    (
        "agent add",
        &[
            "lastword agent add reviewer --action review_code > reviewer.token",
            "lastword agent add tester --group qa --turns-max 2 --ack 1d > tester.token",
        ],
    ),
    (
        "agent set",
        &[
            "lastword agent set coder --roots-per-hour 20",
            "lastword agent set coder --day-tokens 500000 --day-cost 0 --yes",
        ],
    ),
    ("agent list", &["lastword agent list", "lastword agent list --json"]),
    ("agent show", &["lastword agent show coder", "lastword agent show coder --json"]),
    ("agent remove", &["lastword agent remove reviewer", "lastword --url http://127.0.0.1:8080 agent remove reviewer"]),
    (
        "agent token",
        &[
            "lastword agent token coder > coder.token",
            "lastword agent token coder --expires 30d --overlap 1h > coder.token",
        ],
    ),
    ("human", &[]),
    (
        "human add",
        &[
            "lastword human add anna --role approver > anna.token",
            "lastword human add alice-at-coder --role operator > alice.token",
        ],
    ),
    ("human list", &["lastword human list", "lastword human list --json"]),
    ("human role", &["lastword human role anna operator", "lastword human role anna viewer --yes"]),
    ("sign-out", &["lastword sign-out", "lastword --url https://broker.example:7171 sign-out"]),
    (
        "token",
        &[
            "lastword --token-file kilo.token token --scope read --scope ask --expires 8h",
            "lastword token --scope read --expires 30d",
        ],
    ),
    ("sign-in", &["lastword sign-in", "lastword --url https://broker.example:7171 sign-in"]),
    (
        "send",
        &[
            "lastword send reviewer \"Please review the diff\" --action review_code",
            "lastword send \"#review_code\" \"Please review\" --ref LOGIN-1 --request-id review-1 --wait 60s",
            "lastword send user \"Deploy to eu or us?\"",
        ],
    ),
    ("inbox", &["lastword inbox --wait 30s", "lastword --token-file coder.token inbox --json"]),
    (
        "finish",
        &[
            "lastword finish turn-3 \"Fixed, and reviewed.\"",
            "lastword finish turn-3 --status partial --completed api --failed docs \"The API is done.\"",
        ],
    ),
    (
        "ask",
        &[
            "lastword ask coder \"Fix the login form\" --ref LOGIN-1",
            "lastword ask \"#review_code\" --wait 0s < request.txt",
        ],
    ),
    (
        "run",
        &[
            "lastword run --as shout -- tr a-z A-Z",
            "lastword run --as coder --input prompt --cwd work/coder -- claude -p",
            "lastword run --driver acp --as coder --allow \"mcp__lastword__*\" -- claude-agent-acp",
        ],
    ),
    ("discord", &["lastword discord", "lastword --token-file anna.token discord"]),
    (
        "discord init",
        &[
            "lastword discord init",
            "lastword discord init --bot-token-file b.token --channel den --human ann --agent kilo=k.token",
        ],
    ),
    ("discord check", &["lastword discord check", "lastword discord check --config team.toml"]),
    ("top", &["lastword top", "lastword --url http://127.0.0.1:8080 --token-file anna.token top"]),
    (
        "tail",
        &[
            "lastword tail -f",
            "lastword tail -n 20 --type request",
            "lastword tail -f --ref LOGIN-1 --from coder --json",
        ],
    ),
    ("ls", &["lastword ls", "lastword ls --open --all -n 200"]),
    ("console", &["lastword console", "lastword console --print"]),
    ("tree", &["lastword tree LOGIN-1", "lastword tree LOGIN-1/1 --json"]),
    (
        "audit",
        &[
            "lastword audit login form --since 2026-01-31",
            "lastword audit --ref LOGIN-1 --from coder --type request --all",
        ],
    ),
    ("escalations", &["lastword escalations", "lastword escalations --all"]),
    ("answer", &["lastword answer esc-1 \"eu\"", "lastword answer esc-2 --lift lift-1 --yes"]),
    ("approvals", &["lastword approvals", "lastword approvals --all --json"]),
    (
        "approve",
        &[
            "lastword approve apr-1",
            "lastword approve apr-1 --digest 81bed82d --yes",
            "lastword approve apr-1 --edit '{\"command\":\"ls\"}'",
        ],
    ),
    (
        "reject",
        &[
            "lastword reject apr-2 --comment \"not on a Friday\"",
            "lastword reject apr-2 --respond \"Which region? Ask again with one.\"",
        ],
    ),
    ("pause", &["lastword pause LOGIN-1", "lastword pause --agent coder"]),
    ("resume", &["lastword resume LOGIN-1", "lastword resume --workspace --yes"]),
    ("stop", &["lastword stop LOGIN-1", "lastword stop --workspace"]),
    ("stop-server", &["lastword stop-server", "lastword --data team/.lastword stop-server"]),
    (
        "grant",
        &[
            "lastword grant LOGIN-1 --rounds 2",
            "lastword grant LOGIN-1 --messages 20 --time 2h",
            "lastword grant --agent coder --tokens 50000",
        ],
    ),
    ("schedule", &[]),
    (
        "schedule add",
        &[
            "lastword schedule add nightly \"Run all tests.\" --to tester --cron \"0 2 * * *\" --zone Europe/Berlin",
            "lastword schedule add triage \"Sort new issues.\" --to \"#triage\" --cron \"0 9 * * 1-5\"",
        ],
    ),
    ("schedule list", &["lastword schedule list", "lastword schedule list --json"]),
    ("schedule remove", &["lastword schedule remove nightly", "lastword schedule remove nightly --yes"]),
    ("schedule run", &["lastword schedule run nightly", "lastword schedule run nightly --yes"]),
    ("incidents", &["lastword incidents", "lastword incidents --all"]),
    ("claims", &["lastword claims", "lastword claims src/auth.rs"]),
    ("claim", &["lastword claim src/auth.rs --wait 5m", "lastword claim \"repo:src/auth/*\" --for 30m"]),
    ("release", &["lastword release clm-7", "lastword release src/auth.rs"]),
    ("guard", &["lastword guard install", "lastword guard remove"]),
    ("guard install", &["lastword guard install", "lastword guard install --json"]),
    ("guard remove", &["lastword guard remove", "lastword guard remove --json"]),
    ("limits", &["lastword limits", "lastword limits --offline --config team.toml"]),
    ("limits diff", &["lastword limits diff", "lastword limits diff --offline --config team.toml"]),
    ("clock", &["lastword clock", "lastword clock --json"]),
    ("clock accept", &["lastword clock accept", "lastword clock accept --yes"]),
    ("bound", &["lastword bound", "lastword bound --config team.toml"]),
    (
        "replay",
        &["lastword replay recorded.jsonl", "lastword replay --config long.toml --list monday.jsonl tuesday.jsonl"],
    ),
    ("reindex", &["lastword reindex", "lastword --data copy reindex"]),
    (
        "verify",
        &[
            "lastword verify",
            "lastword --data copy verify",
            "lastword verify --key log.pub --checkpoint monday.checkpoint",
        ],
    ),
    (
        "checkpoint",
        &[
            "lastword checkpoint > /mnt/elsewhere/monday.checkpoint",
            "lastword checkpoint --key > log.pub",
            "lastword --url http://10.0.0.5:7171 checkpoint --cosign mine.key --log-key log.pub",
        ],
    ),
    ("cluster", &[]),
    (
        "cluster status",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 status",
            "lastword cluster --cluster nats://127.0.0.1:4222 status --json",
        ],
    ),
    (
        "cluster configure",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 configure team-b team-b.toml",
            "lastword cluster --cluster nats://127.0.0.1:4222 configure team-b --default",
        ],
    ),
    (
        "cluster set-aside",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 set-aside team-b 1204",
            "lastword cluster --cluster nats://127.0.0.1:4222 set-aside team-b 1204 --yes",
        ],
    ),
    (
        "cluster remove",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 remove team-b",
            "lastword cluster --cluster nats://127.0.0.1:4222 remove team-b --with-log",
        ],
    ),
    (
        "cluster add",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 add team-b",
            "lastword cluster --cluster nats://127.0.0.1:4222 --replicas 1 add team-b",
        ],
    ),
    (
        "cluster move-in",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 move-in main",
            "lastword --data /srv/team cluster --cluster nats://127.0.0.1:4222 move-in team",
        ],
    ),
    (
        "cluster move-out",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 move-out main --to .lastword",
            "lastword cluster --cluster nats://127.0.0.1:4222 move-out team --to /srv/team",
        ],
    ),
    ("backup", &["lastword backup monday.lastword", "lastword --url http://10.0.0.5:7171 backup monday.lastword"]),
    ("restore", &["lastword restore monday.lastword", "lastword --data copy restore monday.lastword"]),
    ("archive", &["lastword archive", "lastword --url http://10.0.0.5:7171 archive"]),
    ("archive now", &["lastword archive now --after 90d", "lastword archive now --above 4000000000 --yes"]),
    ("archive restore", &["lastword archive restore", "lastword archive restore --last 1"]),
    ("archive compact", &["lastword archive compact", "lastword --data copy archive compact"]),
    ("notify", &["lastword notify test pager", "lastword notify failed"]),
    ("notify test", &["lastword notify test", "lastword notify test pager"]),
    ("notify failed", &["lastword notify failed", "lastword notify failed pager --json"]),
    ("notify resend", &["lastword notify resend ntf-5f0c", "lastword notify resend --all pager --yes"]),
    ("notify replay", &["lastword notify replay pager --after 1200", "lastword notify replay pager --after 0 --yes"]),
    ("doctor", &["lastword doctor", "lastword doctor --ready", "lastword doctor --cluster nats://10.0.0.1:4222"]),
    ("explain", &["lastword explain refused-12", "lastword explain depth_cap", "lastword explain apr-1"]),
    ("hook", &["lastword --token-file coder.token hook", "lastword --token-file coder.token hook wait"]),
    ("claude", &["lastword claude", "lastword claude --as reviewer --continue"]),
    ("codex", &["lastword codex", "lastword codex --as reviewer resume --last"]),
    ("opencode", &["lastword opencode", "lastword opencode --as reviewer --continue"]),
    ("gemini", &["lastword gemini", "lastword gemini --as reviewer --wake"]),
    ("mcp", &["lastword --token-file coder.token mcp", "lastword --token-file alice.token mcp --as-human"]),
    ("prompt", &["lastword prompt", "lastword prompt > primer.md"]),
    ("completions", &["lastword completions bash > lastword.bash", "lastword completions zsh > _lastword"]),
    ("man", &["lastword man > lastword.1", "lastword man verify", "lastword man --to /usr/share/man/man1"]),
];

/// Returns the examples of the command at `path`, such as `agent add`; of the program itself for the empty path.
pub(super) fn examples_of(path: &str) -> impl Iterator<Item = &'static str> {
    EXAMPLES.iter().filter(move |(of, _)| *of == path).flat_map(|(_, lines)| lines.iter().copied())
}
