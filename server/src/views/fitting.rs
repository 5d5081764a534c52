//! Fits the notices of a delivery into their common size limit (L3).

use lastword_facts::Limits;
use lastword_facts::fact::Digest;
use lastword_facts::ids::ApprovalId;
use lastword_facts::names::SYSTEM_NAME;
use lastword_wire::{Notice, NoticeKind};

use super::notices::Worded;

/// The most omitted notices that are named.
const NAMED_MAX: usize = 100;

/// The notices that fit, and the held calls that they show in full.
#[derive(Default)]
pub(crate) struct Fitted {
    /// The notices: ALERTs first (E4), then in order of arrival.
    pub(crate) notices: Vec<Notice>,
    /// The calls shown in full, with their digests (H2).
    pub(crate) calls: Vec<(ApprovalId, Digest)>,
}

/// Shortens notices that are too long; counts and names those that don't fit.
pub(crate) fn fitted(mut worded: Vec<Worded>, limits: &Limits) -> Fitted {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let (each, all) = (size(limits.notice_bytes_max), size(limits.notices_bytes_max));
    // A stable sort: otherwise the notices remain in order of arrival.
    worded.sort_by_key(|worded| worded.notice.kind != NoticeKind::Alert);
    let worded: Vec<Worded> = worded.into_iter().map(|worded| cut(worded, each)).collect();
    let total: usize = worded.iter().map(|worded| bytes(&worded.notice)).sum();
    // The notice about omitted ones takes room too.
    let room = if total > all { all.saturating_sub(each) } else { all };
    let kept = kept(&worded, room);
    let (mut fitted, mut left_out) = (Fitted::default(), Vec::new());
    for (worded, kept) in worded.into_iter().zip(kept) {
        if kept {
            fitted.calls.extend(worded.call);
            fitted.notices.push(worded.notice);
        } else {
            left_out.push(worded.notice);
        }
    }
    fitted.notices.extend(rest(&left_out));
    fitted
}

/// Returns which notices fit into `room`. Urgent ones take their place first, whenever they arrived.
fn kept(worded: &[Worded], room: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..worded.len()).collect();
    order.sort_by_key(|place| rank(&worded[*place]));
    let (mut used, mut kept) = (0, vec![false; worded.len()]);
    for place in order {
        let more = bytes(&worded[place].notice);
        if used + more <= room {
            used += more;
            kept[place] = true;
        }
    }
    kept
}

const fn rank(worded: &Worded) -> u8 {
    match worded.notice.kind {
        NoticeKind::Alert => 0,
        _ if worded.call.is_some() => 1,
        NoticeKind::Warning => 1,
        NoticeKind::Late | NoticeKind::Status => 2,
        NoticeKind::Info | NoticeKind::Broadcast => 3,
    }
}

/// Returns the size of a notice on the wire.
fn bytes(notice: &Notice) -> usize {
    serde_json::to_vec(notice).map_or(0, |text| text.len())
}

/// Shortens a notice to at most `max` bytes of text. A shortened call doesn't count as shown (H2).
pub(super) fn cut(worded: Worded, max: usize) -> Worded {
    let Worded { mut notice, call } = worded;
    let payload = notice.payload.as_ref().map_or(0, |payload| payload.to_string().len());
    let whole = notice.body.len() + payload;
    if whole <= max {
        return Worded { notice, call };
    }
    let note = |missing: usize| match call {
        Some((id, _)) => format!("… {missing} more bytes: read {id} with check_request before you decide"),
        None => format!("… {missing} bytes more, read {} by audit", notice.id),
    };
    let kept = notice.body.floor_char_boundary(max.saturating_sub(note(whole).len()));
    let note = note(whole - kept);
    notice.body.truncate(kept);
    notice.body.push_str(&note);
    notice.payload = None;
    Worded { notice, call: None }
}

/// Returns the notice about the omitted ones: their number and ids.
fn rest(left_out: &[Notice]) -> Option<Notice> {
    let last = left_out.last()?;
    let named: Vec<&str> = left_out.iter().take(NAMED_MAX).map(|notice| notice.id.as_str()).collect();
    let more = left_out.len() - named.len();
    let more = if more > 0 { format!(" and {more} up to {}", last.id) } else { String::new() };
    let (are, count) = if left_out.len() == 1 { ("notice is", 1) } else { ("notices are", left_out.len()) };
    let body = format!("{count} more {are} omitted here; read them by audit: {}{more}.", named.join(", "));
    Some(Notice {
        id: last.id.clone(),
        kind: NoticeKind::Warning,
        from: SYSTEM_NAME.into(),
        from_human: false,
        reference: None,
        request_id: None,
        body,
        payload: None,
        eta_ms: None,
        created_at: last.created_at.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worded(id: usize, kind: NoticeKind, body: String) -> Worded {
        let notice = Notice {
            id: format!("msg-{id}"),
            kind,
            from: "kilo".into(),
            from_human: false,
            reference: None,
            request_id: None,
            body,
            payload: None,
            eta_ms: None,
            created_at: "2026-01-01T00:00:00.000Z".into(),
        };
        Worded { notice, call: None }
    }

    #[test]
    fn short_notices_stay_as_they_are_with_alerts_first() {
        let all = vec![
            worded(1, NoticeKind::Info, "a".into()),
            worded(2, NoticeKind::Alert, "b".into()),
            worded(3, NoticeKind::Info, "c".into()),
        ];
        let fitted = fitted(all, &Limits::default());
        let ids: Vec<&str> = fitted.notices.iter().map(|notice| notice.id.as_str()).collect();
        assert_eq!(ids, ["msg-2", "msg-1", "msg-3"]);
    }

    #[test]
    fn a_long_notice_is_cut_between_characters_and_says_what_is_missing() {
        let limits = Limits { notice_bytes_max: 100, ..Limits::default() };
        let mut long = worded(7, NoticeKind::Info, "ü".repeat(200));
        long.notice.payload = Some(serde_json::json!({"a": 1}));
        let fitted = fitted(vec![long], &limits);
        let body = &fitted.notices[0].body;
        let kept = body.chars().take_while(|c| *c == 'ü').count() * 2;
        assert_eq!(body.trim_start_matches('ü'), format!("… {} bytes more, read msg-7 by audit", 400 + 7 - kept));
        assert!(body.len() <= 100 && kept > 40, "{body}");
        assert_eq!(fitted.notices[0].payload, None);
    }

    #[test]
    fn a_notice_of_just_the_limit_is_whole() {
        let body =
            |bytes: u64| fitted(vec![worded(7, NoticeKind::Info, "x".repeat(bytes as usize))], &Limits::default());
        let max = Limits::default().notice_bytes_max;
        assert!(!body(max).notices[0].body.contains('…'));
        assert!(body(max + 1).notices[0].body.contains('…'));
    }

    #[test]
    fn notices_of_just_the_sum_are_all_there() {
        let all = || (0..9).map(|id| worded(id, NoticeKind::Info, "x".repeat(300))).collect::<Vec<_>>();
        let sum = all().iter().map(|worded| bytes(&worded.notice)).sum::<usize>() as u64;
        let of = |notices_bytes_max| fitted(all(), &Limits { notices_bytes_max, ..Limits::default() }).notices;
        assert!(of(sum).iter().all(|notice| !notice.body.contains("omitted here")));
        assert!(of(sum - 1).iter().any(|notice| notice.body.contains("omitted here")));
    }

    #[test]
    fn beyond_the_sum_the_rest_is_counted_and_named_and_what_is_urgent_stays() {
        let mut all: Vec<Worded> = (0..400).map(|id| worded(id, NoticeKind::Info, "x".repeat(250_000))).collect();
        all.push(worded(400, NoticeKind::Warning, "stop".into()));
        let limits = Limits::default();
        let fitted = fitted(all, &limits);
        let size: usize = fitted.notices.iter().map(bytes).sum();
        assert!(size as u64 <= limits.notices_bytes_max && size > 24_000, "{size}");
        assert!(fitted.notices.iter().any(|notice| notice.body == "stop"));
        let note = &fitted.notices.last().unwrap().body;
        let count = 401 - (fitted.notices.len() - 1);
        assert!(
            note.starts_with(&format!("{count} more notices are omitted here; read them by audit: msg-")),
            "{note}"
        );
        assert!(note.ends_with(&format!(" and {} up to msg-399.", count - NAMED_MAX)), "{note}");
    }

    #[test]
    fn a_call_that_is_cut_was_not_shown() {
        let call = Some((ApprovalId(3), [0; 32]));
        let offer = |body: String| Worded { call, ..worded(1, NoticeKind::Info, body) };
        assert_eq!(fitted(vec![offer("rm".into())], &Limits::default()).calls.len(), 1);
        let cut = fitted(vec![offer("x".repeat(3_000))], &Limits::default());
        assert!(cut.calls.is_empty() && cut.notices[0].body.contains("read apr-3"), "{}", cut.notices[0].body);
    }
}
