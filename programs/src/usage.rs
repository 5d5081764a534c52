//! The tokens and the cost of a run, model by model.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lastword_client::wire::{self, MODELS_MAX, ModelUsage, Usage};
use lastword_facts::names::ModelName;
use serde::Deserialize;

/// The tokens of requests to one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Tokens read that no cache is involved in.
    pub(crate) input: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) output: u64,
}

impl Tokens {
    /// Splits an input that counts the cached tokens, too.
    pub(crate) const fn of_total(input: u64, cache_read: u64, cache_write: u64, output: u64) -> Self {
        let cached = cache_read.saturating_add(cache_write);
        Self { input: input.saturating_sub(cached), cache_read, cache_write, output }
    }

    const fn sum(self) -> u64 {
        let read = self.input.saturating_add(self.cache_read).saturating_add(self.cache_write);
        read.saturating_add(self.output)
    }

    pub(crate) const fn add(&mut self, more: Self) {
        self.input = self.input.saturating_add(more.input);
        self.cache_read = self.cache_read.saturating_add(more.cache_read);
        self.cache_write = self.cache_write.saturating_add(more.cache_write);
        self.output = self.output.saturating_add(more.output);
    }
}

/// Returns what tokens count for in budgets: by the prices of their model if they are known.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "weights are small and not negative")]
fn weighted(tokens: Tokens, price: Option<&Price>) -> u64 {
    let weight = |part: Option<f64>, default: u64| {
        let known = price.filter(|price| price.input > 0.0).and_then(|price| Some(part? / price.input));
        known.map_or(default, |weight| (weight * 100.0).round() as u64)
    };
    let read = wire::weighted(tokens.cache_read, weight(price.and_then(|p| p.cache_read), wire::CACHE_READ));
    let written = wire::weighted(tokens.cache_write, weight(price.and_then(|p| p.cache_write), wire::CACHE_WRITE));
    tokens.input.saturating_add(tokens.output).saturating_add(read).saturating_add(written)
}

/// The price of a model, in dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens that the model reads.
    pub input: f64,
    /// Tokens that the model writes.
    pub output: f64,
    /// Tokens read from a cache; `None` means the price of `input`.
    pub cache_read: Option<f64>,
    /// Tokens written to a cache; `None` means the price of `input`.
    pub cache_write: Option<f64>,
}

impl Price {
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
    fn of(&self, tokens: Tokens) -> f64 {
        let part = |tokens: u64, price: f64| tokens as f64 * price / 1_000_000.0;
        part(tokens.input, self.input)
            + part(tokens.cache_read, self.cache_read.unwrap_or(self.input))
            + part(tokens.cache_write, self.cache_write.unwrap_or(self.input))
            + part(tokens.output, self.output)
    }
}

/// The date of the built-in prices.
pub const PRICES_DATE: &str = "2025-10-01";

/// Built-in list prices: model, input, cached input and output, in dollars per million tokens.
const PRICES: [(&str, f64, f64, f64); 5] = [
    ("gpt-5", 1.25, 0.125, 10.0),
    ("gpt-5-codex", 1.25, 0.125, 10.0),
    ("gpt-5-mini", 0.25, 0.025, 2.0),
    ("gemini-2.5-pro", 1.25, 0.31, 10.0),
    ("gemini-2.5-flash", 0.30, 0.075, 2.5),
];

/// The prices of models, by name: those of the configuration over the built-in ones.
#[derive(Clone, Debug)]
pub struct Prices(BTreeMap<String, Price>);

impl Prices {
    /// Merges the configured prices with the built-in ones; a configured one replaces the built-in one as a whole.
    #[must_use]
    pub fn new(configured: BTreeMap<String, Price>) -> Self {
        let built_in = PRICES.into_iter().map(|(model, input, cached, output)| {
            (model.to_owned(), Price { input, output, cache_read: Some(cached), cache_write: None })
        });
        Self(built_in.chain(configured).collect())
    }
}

impl Default for Prices {
    fn default() -> Self {
        Self::new(BTreeMap::new())
    }
}

/// The usage that a program has reported so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    models: BTreeMap<String, (Tokens, Option<f64>)>,
}

impl Meter {
    /// Adds tokens to a model; `cost` is the program's own figure, in dollars.
    pub(crate) fn add(&mut self, model: &str, tokens: Tokens, cost: Option<f64>) {
        let (sum, dollars) = self.models.entry(model.to_owned()).or_default();
        sum.add(tokens);
        if let Some(cost) = cost {
            *dollars = Some(dollars.unwrap_or(0.0) + cost);
        }
    }

    /// Returns the sum over all models, or `None` if the program has reported nothing.
    ///
    /// A model without a cost of the program's own and without a price adds tokens but no money.
    pub(crate) fn usage(&self, prices: &Prices) -> Option<Usage> {
        let mut sum = Tokens::default();
        let mut dollars: Option<f64> = None;
        let (mut models, mut all) = (Vec::new(), 0_u64);
        for (model, (tokens, cost)) in &self.models {
            sum.add(*tokens);
            // A cost of 0 is what programs print for a model whose price they don't know.
            let cost = cost.filter(|cost| *cost > 0.0);
            let cost_usd = cost.or_else(|| prices.0.get(model).map(|price| price.of(*tokens)));
            if let Some(cost) = cost_usd {
                dollars = Some(dollars.unwrap_or(0.0) + cost);
            }
            let own = weighted(*tokens, prices.0.get(model));
            all = all.saturating_add(own);
            models.push(ModelUsage {
                model: model.clone(),
                tokens: tokens.sum(),
                weighted_tokens: Some(own),
                cost_usd,
            });
        }
        let input = sum.input.saturating_add(sum.cache_read).saturating_add(sum.cache_write);
        let usage = Usage {
            input_tokens: input,
            cache_read_tokens: sum.cache_read,
            cache_write_tokens: sum.cache_write,
            output_tokens: sum.output,
            weighted_tokens: Some(all),
            cost_usd: dollars,
            estimated: false,
            models: named(models),
        };
        (input > 0 || sum.output > 0).then(|| consistent(usage))
    }
}

/// Returns the models that a report can name: those that the program names, the largest first.
pub(crate) fn named(mut models: Vec<ModelUsage>) -> Vec<ModelUsage> {
    models.retain(|part| ModelName::new(&part.model).is_ok() && part.tokens > 0);
    models.sort_by_key(|part| Reverse(part.tokens));
    models.truncate(MODELS_MAX);
    models
}

/// Drops models whose parts aren't those of the whole: the broker would refuse the report, and with it the answer.
pub(crate) fn consistent(usage: Usage) -> Usage {
    if usage.by_model().is_ok() { usage } else { Usage { models: Vec::new(), ..usage } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_names_the_built_in_prices_and_their_date() {
        let guide = include_str!("../../docs/runner.md");
        for word in PRICES.map(|(model, ..)| model).into_iter().chain([PRICES_DATE]) {
            assert!(guide.contains(word), "docs/runner.md lacks {word}");
        }
    }

    #[test]
    fn a_price_is_used_only_where_the_program_gives_no_money() {
        let price = Price { input: 1.0, output: 10.0, cache_read: Some(0.1), cache_write: None };
        let prices = Prices::new(BTreeMap::from([("mine".to_owned(), price)]));
        let tokens = Tokens { input: 1_000_000, cache_read: 2_000_000, cache_write: 0, output: 100_000 };
        let mut meter = Meter::default();
        assert!(meter.usage(&prices).is_none(), "nothing was reported");
        meter.add("mine", tokens, None);
        let usage = meter.usage(&prices).unwrap();
        assert_eq!((usage.input_tokens, usage.cache_read_tokens, usage.output_tokens), (3_000_000, 2_000_000, 100_000));
        assert!((usage.cost_usd.unwrap() - 2.2).abs() < 1e-9, "{usage:?}");
        let mut meter = Meter::default();
        meter.add("mine", tokens, Some(0.5));
        assert_eq!(meter.usage(&prices).unwrap().cost_usd, Some(0.5));
        let mut meter = Meter::default();
        meter.add("unknown", tokens, None);
        assert_eq!(meter.usage(&prices).unwrap().cost_usd, None);
    }

    #[test]
    fn a_report_names_its_largest_models_and_the_broker_takes_it() {
        let mut meter = Meter::default();
        let tokens = |input| Tokens { input, output: 1, ..Tokens::default() };
        meter.add("", tokens(9_999), Some(0.3));
        meter.add("<synthetic>", Tokens::default(), None);
        for n in 0..10 {
            meter.add(&format!("model-{n}"), tokens(100 + n), Some(0.1));
        }
        meter.add("gpt-5", tokens(1_000_000), None);
        let usage = meter.usage(&Prices::default()).unwrap();
        let names: Vec<&str> = usage.models.iter().map(|part| part.model.as_str()).collect();
        assert_eq!(names[..3], ["gpt-5", "model-9", "model-8"]);
        assert_eq!((names.len(), usage.models[0].tokens), (MODELS_MAX, 1_000_001));
        assert!((usage.models[0].cost_usd.unwrap() - 1.250_01).abs() < 1e-9, "{usage:?}");
        assert_eq!(usage.by_model().map(|parts| parts.len()), Ok(MODELS_MAX));
    }

    #[test]
    fn models_that_exceed_the_whole_are_left_out_of_the_report() {
        let part = |tokens| vec![ModelUsage { model: "gpt-5".into(), tokens, ..ModelUsage::default() }];
        let usage = |tokens| Usage { input_tokens: 10, models: part(tokens), ..Usage::default() };
        assert_eq!(consistent(usage(10)), usage(10));
        assert_eq!(consistent(usage(11)), Usage { models: Vec::new(), ..usage(11) });
    }
}
