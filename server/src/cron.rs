//! The ticks of schedules: cron expressions in time zones (D13).

#[cfg(feature = "properties")]
pub(crate) mod properties;

use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, CronPattern};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use lastword_facts::Time;
use lastword_facts::fact::Schedule;
use lastword_facts::names::Ref;
use lastword_wire::FieldError;

/// The number of ticks that are checked for the shortest interval between two.
const LOOKED_AT: usize = 500;

/// The ticks of a cron expression in its time zone.
#[derive(Debug)]
pub struct Ticks {
    cron: Cron,
    zone: TimeZone,
}

impl Ticks {
    /// Parses an expression of five fields and the name of a time zone.
    pub fn parse(cron: &str, zone: &str) -> Result<Self, FieldError> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let said = |error: &dyn std::fmt::Display| FieldError::new("cron", format!("{cron:?}: {error}"));
        let cron = parser.parse(cron).map_err(|error| said(&error))?;
        if never_ticks(&cron.pattern) {
            return Err(said(&"never ticks"));
        }
        let unknown = |_| {
            FieldError::new(
                "time_zone",
                format!("is not a known time zone: {zone:?}; use a name such as Europe/Berlin"),
            )
        };
        Ok(Self { cron, zone: TimeZone::get(zone).map_err(unknown)? })
    }

    /// Returns the first tick after `moment`; `None` if the expression never ticks again.
    pub fn after(&self, moment: Time) -> Option<Time> {
        let next = self.cron.find_next_occurrence(&self.zoned(moment)?, false).ok()?;
        u64::try_from(next.timestamp().as_millisecond()).ok().map(Time)
    }

    /// Refuses an expression with two ticks less than `least_ms` apart; returns the first tick after `now`.
    pub(crate) fn check_interval(&self, now: Time, least_ms: u64) -> Result<Time, FieldError> {
        let first = self.after(now).ok_or_else(|| FieldError::new("cron", "never ticks again"))?;
        let mut before = first;
        // Intervals vary (`0,5 9 * * *`), so one pair proves nothing.
        for _ in 0..LOOKED_AT {
            let Some(next) = self.after(before) else { break };
            if next.since(before) < least_ms {
                let (minutes, least) = (next.since(before) / 60_000, least_ms / 60_000);
                let text = format!("ticks {minutes} minutes apart, and {least} is the least");
                return Err(FieldError::new("cron", text));
            }
            before = next;
        }
        Ok(first)
    }

    /// Describes the expression in words, without its time zone.
    pub fn words(&self) -> String {
        let words = self.cron.describe();
        let words = words.trim_end_matches('.');
        words.strip_prefix("At every ").map_or_else(|| words.to_owned(), |rest| format!("Every {rest}"))
    }

    /// Returns the date in the schedule's time zone, as `2026-11-23`.
    fn date(&self, moment: Time) -> Option<String> {
        self.zoned(moment).map(|zoned| zoned.date().to_string())
    }

    fn zoned(&self, moment: Time) -> Option<Zoned> {
        let moment = Timestamp::from_millisecond(i64::try_from(moment.0).ok()?).ok()?;
        Some(moment.to_zoned(self.zone.clone()))
    }
}

/// Returns whether no moment matches an expression. The library would try each minute up to the year 5000 to learn it:
/// `, * * * *`, a list without an element, takes seconds.
fn never_ticks(pattern: &CronPattern) -> bool {
    let without_values = [&pattern.minutes, &pattern.hours, &pattern.months].map(|field| field.values().is_empty());
    without_values.contains(&true) || !has_a_day(pattern)
}

/// Returns whether a day exists that an expression matches. A day that is one of a weekday, too, may be years apart.
fn has_a_day(pattern: &CronPattern) -> bool {
    const LENGTHS: [u16; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (days, weekdays) = (&pattern.days, &pattern.days_of_week);
    let first = days.values().into_iter().min();
    let exists = |month: u16| first.is_some_and(|day| day <= LENGTHS[usize::from(month) - 1]);
    // `L` and `W` match another day in each month.
    let day = days.has_modifiers() || pattern.months.values().into_iter().any(exists);
    let weekday = weekdays.has_modifiers() || !weekdays.values().is_empty();
    match (pattern.is_dow_wildcard(), pattern.is_dom_wildcard()) {
        (true, _) => day,
        (false, true) => weekday,
        (false, false) if pattern.matches_dom_and_dow() => day && weekday,
        (false, false) => day || weekday,
    }
}

/// Returns the template of a schedule's REFs; `NAME-{n}` unless the schedule sets its own.
pub(crate) fn template(schedule: &Schedule) -> String {
    let own = schedule.reference.as_deref().map(str::to_owned);
    own.unwrap_or_else(|| format!("{}-{{n}}", schedule.name))
}

/// Builds the REF of a schedule's `n`th tick, which happens at `moment`.
pub(crate) fn reference(schedule: &Schedule, ticks: &Ticks, n: u64, moment: Time) -> Result<Ref, FieldError> {
    let date = ticks.date(moment).unwrap_or_default();
    let text = template(schedule).replace("{date}", &date).replace("{n}", &n.to_string());
    Ref::new(&text).map_err(|error| FieldError::new("ref", format!("{text:?} {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_tick_is_at_the_hour_of_its_zone_in_summer_and_winter() {
        let ticks = Ticks::parse("0 9 * * MON", "Europe/Berlin").unwrap();
        // Thursday 2026-10-22 12:00 UTC. The Monday after it is the first in winter time.
        let before = Time(1_792_670_400_000);
        let monday = ticks.after(before).unwrap();
        let week_before = ticks.after(Time(before.0 - 7 * 24 * HOUR)).unwrap();
        assert_eq!(monday.since(week_before), (7 * 24 + 1) * HOUR, "an hour is given back");
        assert_eq!(ticks.date(monday).unwrap(), "2026-10-26");
    }

    #[test]
    fn an_expression_is_told_in_words() {
        for (cron, words) in
            [("0 2 * * *", "At 02:00"), ("0 9 * * MON", "At 09:00, on Monday"), ("*/30 * * * *", "Every 30 minutes")]
        {
            assert_eq!(Ticks::parse(cron, "UTC").unwrap().words(), words);
        }
    }

    #[test]
    fn what_is_no_expression_or_zone_is_named() {
        assert_eq!(Ticks::parse("often", "UTC").unwrap_err().field, "cron");
        assert_eq!(Ticks::parse("* * * * * *", "UTC").unwrap_err().field, "cron");
        assert_eq!(Ticks::parse("0 9 * * *", "Mars/Olympus").unwrap_err().field, "time_zone");
    }

    #[test]
    fn an_expression_that_never_ticks_is_refused_without_a_search() {
        for cron in [
            ", * * * *",
            "0 , * * *",
            "0 0 * , *",
            "0 0 30 2 *",
            "0 0 31 2,4,6,9,11 *",
            "0 0 30,31 2 +MON",
            "0 2 * * ,",
            "0 2 L * +",
        ] {
            assert!(Ticks::parse(cron, "UTC").unwrap_err().problem.contains("never ticks"), "{cron}");
        }
        for cron in [
            "0 0 29 2 *",
            "0 0 31 2,3 *",
            "0 0 30 2 MON",
            "0 0 L 2 *",
            "0 0 * * 1#5",
            "0 2 1 * ,",
            "0 0 31W 3 *",
            "0,, 0 * * *",
        ] {
            assert!(Ticks::parse(cron, "UTC").unwrap().after(Time(0)).is_some(), "{cron}");
        }
    }

    #[test]
    fn ticks_that_are_too_close_are_refused() {
        let least = 10 * 60_000;
        let ticks = |cron: &str| Ticks::parse(cron, "UTC").unwrap();
        let of = |cron: &str| ticks(cron).check_interval(Time(0), least);
        assert!(of("*/5 * * * *").is_err());
        assert!(of("58,59 23 * * *").is_err());
        assert!(of("*/10 * * * *").is_ok());
        assert!(ticks("*/10 * * * *").check_interval(Time(0), least + 1).is_err());
    }
}
