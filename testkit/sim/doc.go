// Package sim plays scenarios of an orchestrator and its workers in virtual time, and looks whether all that must hold
// does.
package sim
