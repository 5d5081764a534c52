//! The nodes that serve a workspace, as one of them knows them.

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its address for the other nodes.
    pub url: String,
    /// The version of the program.
    pub version: String,
    /// Whether it was heard of in the last seconds.
    pub alive: bool,
    /// Whether it can lead the workspace: it follows the log and isn't far behind.
    pub able: bool,
}

/// The nodes of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodesView {
    /// All of them, in alphabetical order.
    pub nodes: Vec<NodeView>,
    /// The name of the one that leads.
    pub leader: Option<String>,
    /// The number of its lease.
    pub epoch: u64,
    /// What is wrong with the servers that store the log, as sentences.
    pub stores: Vec<String>,
}

/// Knows the nodes of a workspace.
pub trait Nodes: Send + Sync {
    /// Returns them as they are now.
    fn nodes(&self) -> NodesView;

    /// Returns whether this node still leads what it opened. What it knows may be old otherwise.
    fn leads(&self) -> bool;
}
