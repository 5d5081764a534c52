//! `lastword human`: registers humans and sets their roles (H7).

use clap::Subcommand;
use lastword_client::wire::{AgentView, HumanPatch, NewHuman};
use lastword_facts::fact::Role;

use super::Context;
use super::send::one_of;
use crate::failure::Failure;
use crate::out::{escape_line, table};
use crate::session::{Authority, confirmed};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: HumanCommand,
}

#[derive(Debug, Subcommand)]
enum HumanCommand {
    /// Register a human and print the token, once
    Add {
        /// Name of the human.
        name: String,
        /// owner (everything), operator (stop, pause, resume, grant, ask), approver (answer, approve) or viewer (read only).
        #[arg(long, value_parser = role)]
        role: Role,
    },
    /// List humans and their roles
    List,
    /// Set a human's role
    Role {
        /// Name of the human.
        name: String,
        /// New role: owner, operator, approver or viewer.
        #[arg(value_parser = role)]
        role: Role,
        /// Confirm without a terminal, in a script.
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match args.verb {
        HumanCommand::Add { name, role } => {
            let registered = cx.acting().await?.register_human(&NewHuman { name, role }).await?;
            cx.out.show(&registered, |registered, _| registered.token.clone())
        }
        HumanCommand::List => {
            let page = cx.client(Authority::Read)?.humans().await?;
            cx.out.show(&page, |page, out| table(&HEAD, &page.items.iter().map(row).collect::<Vec<_>>(), out))
        }
        HumanCommand::Role { name, role, yes } => {
            let client = cx.deciding(yes).await?;
            if !confirmed(&format!("Make {} {role}?", escape_line(&name)), yes)? {
                return Err(Failure::refused("not changed"));
            }
            let human = client.amend_human(&name, &HumanPatch { role }).await?;
            cx.out.show(&human, |human, _| format!("{} is {role} now", human.name))
        }
    }
}

const HEAD: [&str; 3] = ["name", "role", "state"];

fn row(human: &AgentView) -> Vec<String> {
    let role = human.role.map(|role| role.to_string()).unwrap_or_default();
    vec![human.name.clone(), role, crate::render::word(&human.state)]
}

fn role(text: &str) -> Result<Role, String> {
    Role::from_word(text).ok_or_else(|| one_of(Role::ALL))
}
