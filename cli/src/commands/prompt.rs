//! `lastword prompt`: prints what an agent has to know, short enough for every system prompt.

use lastword_mcp::PRIMER;
use serde_json::json;

use super::Context;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, cx: &Context) -> Result<(), Failure> {
    cx.out.show(&json!({ "prompt": PRIMER }), |_, _| PRIMER.to_owned())
}

#[cfg(test)]
mod tests {
    use lastword_mcp::{INSTRUCTIONS, PRIMER};
    use lastword_programs::CONDUCT;

    #[test]
    fn what_a_model_is_told_on_joining_agrees_with_what_a_delivery_says_of_the_end_of_a_turn() {
        const EXCEPTION: &str = "your final message is the answer";
        // A delivery whose final message is finished forbids the tool by the words that the others except.
        let forbids = CONDUCT.split(". ").find(|sentence| sentence.contains("finish_turn")).unwrap();
        assert!(forbids.contains(EXCEPTION) && forbids.contains("don't call finish_turn"), "{forbids}");
        for joining in [PRIMER, INSTRUCTIONS] {
            let says: Vec<&str> = joining.split(". ").filter(|sentence| sentence.contains("finish_turn")).collect();
            assert!(!says.is_empty(), "{joining}");
            for sentence in says {
                assert!(sentence.contains(&format!("unless you are told that {EXCEPTION}")), "{sentence}");
            }
        }
    }
}
