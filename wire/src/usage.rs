//! What a turn cost: its tokens and its money, and their parts by model.

use serde::{Deserialize, Serialize};

use lastword_facts::fact::{ModelSpend, Spend};
use lastword_facts::names::ModelName;

use crate::FieldError;

/// The most models that one report names.
pub const MODELS_MAX: usize = 8;
/// The member that the errors of models name.
const MODELS: &str = "usage.models";

/// What a token read from a cache counts, in hundredths (B1).
pub const CACHE_READ: u64 = 10;
/// What a token written to a cache counts, in hundredths (B1).
pub const CACHE_WRITE: u64 = 125;

/// Returns what tokens count for that weigh so many hundredths each; a started one counts.
#[must_use]
pub const fn weighted(tokens: u64, hundredths: u64) -> u64 {
    tokens.saturating_mul(hundredths).div_ceil(100)
}

/// Returns the share of a sum that a part of the whole has, rounded up.
fn share(sum: u64, part: u64, whole: u64) -> u64 {
    let share = (u128::from(sum) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The tokens and the cost of a turn, from its start (B1).
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens that the model read, including those from and for a cache.
    #[serde(default)]
    pub input_tokens: u64,
    /// The part of `input_tokens` that was read from a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read_tokens: u64,
    /// The part of `input_tokens` that was written to a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Tokens that the model wrote.
    #[serde(default)]
    pub output_tokens: u64,
    /// The tokens that count in budgets, by the prices of the models that the reporter knows. Without it a token read from
    /// a cache counts a tenth, and one written to a cache 1.25.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighted_tokens: Option<u64>,
    /// Cost, in dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Whether the figures are estimated, and not measured by the agent's program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// The parts of the tokens and the cost by model, at most 8, each of another model. Together they are at most the
    /// whole: what they leave out counts for no model. A report without them keeps those of the report before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelUsage>,
}

/// The part of a turn's tokens and cost that one model accounts for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ModelUsage {
    /// The name of the model, such as `claude-sonnet-4-5`: 1 to 64 characters on one line, without spaces around it.
    pub model: String,
    /// Tokens that the model read and wrote, including those from and for a cache.
    pub tokens: u64,
    /// The tokens that count in budgets; without it they count as much as those of the whole turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighted_tokens: Option<u64>,
    /// Cost, in dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// Returns the tokens that the model read and wrote.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Returns the weighted tokens and the cost of the whole turn.
    #[must_use]
    pub fn spend(&self) -> Spend {
        let by_default = || {
            let (read, written) = (self.cache_read_tokens, self.cache_write_tokens);
            let plain = self.tokens().saturating_sub(read).saturating_sub(written);
            plain.saturating_add(weighted(read, CACHE_READ)).saturating_add(weighted(written, CACHE_WRITE))
        };
        let tokens = self.weighted_tokens.unwrap_or_else(by_default);
        Spend { tokens, cost_microusd: self.cost_usd.map_or(0, microusd) }
    }

    /// Checks that a model could have produced the figures.
    ///
    /// # Errors
    /// A number is beyond [`Spend::REPORT_MAX`]; the error names its member.
    pub fn check(&self) -> Result<(), FieldError> {
        let Spend { tokens: tokens_max, cost_microusd: cost_max } = Spend::REPORT_MAX;
        let counts = [
            ("usage.input_tokens", self.input_tokens),
            ("usage.cache_read_tokens", self.cache_read_tokens),
            ("usage.cache_write_tokens", self.cache_write_tokens),
            ("usage.output_tokens", self.output_tokens),
            ("usage.weighted_tokens", self.weighted_tokens.unwrap_or(0)),
        ];
        let on_models = self.models.iter().map(|part| (MODELS, part.tokens.max(part.weighted_tokens.unwrap_or(0))));
        if let Some((field, tokens)) = counts.into_iter().chain(on_models).find(|(_, tokens)| *tokens > tokens_max) {
            let text =
                format!("has {tokens} tokens, and no turn has more than {tokens_max}: leave out what isn't known");
            return Err(FieldError::new(field, text));
        }
        let costs = self.models.iter().map(|part| (MODELS, part.cost_usd));
        for (field, cost) in [("usage.cost_usd", self.cost_usd)].into_iter().chain(costs) {
            if let Some(dollars) = cost.filter(|dollars| microusd(*dollars) > cost_max) {
                let text = format!("has {dollars} dollars, and no turn costs more than {}", cost_max / 1_000_000);
                return Err(FieldError::new(field, text));
            }
        }
        Ok(())
    }

    /// Checks the figures, and returns the parts by model. Together they never exceed [`Usage::spend`].
    ///
    /// # Errors
    /// A number is one that [`Usage::check`] refuses, a name is invalid or there twice, the models are too many, or they
    /// exceed the whole.
    pub fn by_model(&self) -> Result<Vec<ModelSpend>, FieldError> {
        self.check()?;
        if self.models.len() > MODELS_MAX {
            let text =
                format!("has {} models: name the largest {MODELS_MAX}, and leave the others out", self.models.len());
            return Err(FieldError::new(MODELS, text));
        }
        let (whole, all, mut sum, mut counted) = (self.spend(), self.tokens(), Spend::default(), 0_u64);
        let mut parts: Vec<ModelSpend> = Vec::with_capacity(self.models.len());
        for part in &self.models {
            let wrong = |error| FieldError::new(MODELS, format!("has a model {:?} whose name {error}", part.model));
            let model = ModelName::new(&part.model).map_err(wrong)?;
            if parts.iter().any(|other| other.model == model) {
                return Err(FieldError::new(MODELS, format!("has {model:?} twice: add its figures up")));
            }
            counted = counted.saturating_add(part.tokens);
            let tokens = part.weighted_tokens.unwrap_or_else(|| share(whole.tokens, part.tokens, all));
            let own = Spend { tokens, cost_microusd: part.cost_usd.map_or(0, microusd) };
            // Each part is rounded separately, so their sum may exceed the whole by some millionths of a dollar.
            let left = whole.beyond(sum);
            sum.add(own);
            parts.push(ModelSpend { model, spend: own.min(left) });
        }
        if counted > all {
            let text = format!(
                "has {counted} tokens and the turn {all}: count all of them in `input_tokens` and `output_tokens`"
            );
            return Err(FieldError::new(MODELS, text));
        }
        if sum.cost_microusd > whole.cost_microusd.saturating_add(self.models.len() as u64) {
            return Err(FieldError::new(
                MODELS,
                "costs more than the turn: state the cost of all of it in `usage.cost_usd`",
            ));
        }
        Ok(parts)
    }
}

/// Converts dollars to millionths, rounded; negative amounts and NaN become 0.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and negative is 0")]
pub fn microusd(dollars: f64) -> u64 {
    (dollars * 1_000_000.0 + 0.5) as u64
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(models: &[(&str, u64, Option<f64>)]) -> Usage {
        let part = |(model, tokens, cost_usd): &(&str, u64, Option<f64>)| ModelUsage {
            model: (*model).into(),
            tokens: *tokens,
            weighted_tokens: None,
            cost_usd: *cost_usd,
        };
        let models = models.iter().map(part).collect();
        Usage { input_tokens: 900, output_tokens: 100, cost_usd: Some(0.3), models, ..Usage::default() }
    }

    fn refused(models: &[(&str, u64, Option<f64>)]) -> String {
        usage(models).by_model().unwrap_err().to_string()
    }

    #[test]
    fn the_parts_of_a_turn_are_at_most_the_turn() {
        let parts = usage(&[("big", 600, Some(0.2)), ("small", 400, Some(0.1))]).by_model().unwrap();
        let told: Vec<_> =
            parts.iter().map(|part| (part.model.as_str(), part.spend.tokens, part.spend.cost_microusd)).collect();
        assert_eq!(told, [("big", 600, 200_000), ("small", 400, 100_000)]);
        assert_eq!(usage(&[("big", 1, None)]).by_model().unwrap()[0].spend, Spend { tokens: 1, cost_microusd: 0 });
        assert_eq!(usage(&[]).by_model(), Ok(Vec::new()), "a report may name no model");
        assert_eq!(
            refused(&[("big", 600, None), ("small", 401, None)]),
            "`usage.models` has 1001 tokens and the turn 1000: count all of them in `input_tokens` and `output_tokens`"
        );
        assert_eq!(
            refused(&[("big", 600, Some(0.2)), ("small", 400, Some(0.2))]),
            "`usage.models` costs more than the turn: state the cost of all of it in `usage.cost_usd`"
        );
        assert!(refused(&[("big", u64::MAX, None), ("small", u64::MAX, None)]).contains("tokens"), "sums saturate");
    }

    #[test]
    fn what_a_cache_gave_counts_less_and_what_it_took_more() {
        let cached = Usage { cache_read_tokens: 705, cache_write_tokens: 100, ..usage(&[("big", 500, None)]) };
        assert_eq!(cached.spend().tokens, 95 + 71 + 125 + 100);
        assert_eq!(cached.by_model().unwrap()[0].spend.tokens, 196, "a model's part counts as much as the whole");
        let known = Usage { weighted_tokens: Some(400), ..cached };
        assert_eq!(known.spend().tokens, 400, "the reporter knows the prices of its models");
        assert_eq!(Usage { cache_read_tokens: u64::MAX, ..Usage::default() }.spend().tokens, u64::MAX / 100 + 1);
    }

    #[test]
    fn rounding_never_makes_the_parts_more_than_the_turn() {
        let thirds: Vec<_> = ["a", "b", "c"].into_iter().map(|model| (model, 1, Some(0.000_000_6))).collect();
        let usage = Usage { cost_usd: Some(0.000_001_8), ..usage(&thirds) };
        let parts = usage.by_model().unwrap();
        let sum: u64 = parts.iter().map(|part| part.spend.cost_microusd).sum();
        assert_eq!((sum, usage.spend().cost_microusd), (2, 2));
    }

    #[test]
    fn a_model_is_named_once_and_properly() {
        assert_eq!(refused(&[("a", 1, None), ("a", 2, None)]), "`usage.models` has a twice: add its figures up");
        assert_eq!(refused(&[("", 1, None)]), "`usage.models` has a model \"\" whose name is empty");
        assert!(
            refused(&[("a\nb", 1, None)]).contains("whose name has a character that is not allowed at byte 1: use")
        );
        let many: Vec<String> = (0..9).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(|model| (model.as_str(), 1, None)).collect();
        assert!(usage(&many[..MODELS_MAX]).by_model().is_ok());
        assert_eq!(refused(&many), "`usage.models` has 9 models: name the largest 8, and leave the others out");
    }

    #[test]
    fn dollars_are_rounded_to_millionths() {
        for (dollars, millionths) in [(0.000_001_4, 1), (0.000_001_6, 2), (-1.0, 0), (f64::NAN, 0), (1e300, u64::MAX)] {
            assert_eq!(microusd(dollars), millionths, "{dollars}");
        }
    }
}
