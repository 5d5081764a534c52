//! The addresses that invite the bridge's bots into a server, with exactly the permissions that they need.

use super::check::Needs;

/// Returns the address that an admin of the server opens.
pub(crate) fn address(application: u64, needs: Needs) -> String {
    let scope = if needs == Needs::Broker { "bot+applications.commands" } else { "bot" };
    let permissions = needs.permissions();
    format!("https://discord.com/oauth2/authorize?client_id={application}&scope={scope}&permissions={permissions}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_asks_for_what_is_checked_and_no_more() {
        let broker = address(7, Needs::Broker);
        let asked = "client_id=7&scope=bot+applications.commands&permissions=309237746688";
        assert!(broker.ends_with(asked), "{broker}");
        assert!(address(8, Needs::Ours).ends_with("client_id=8&scope=bot&permissions=274878008384"));
    }
}
