// Package daemon is what the command line knows of an orchestrator in its own process: what it is given, and what can be
// done with it. It is apart from cmd/internal/engine, which makes one, so that the program of a worker links no
// orchestrator: every keeper of a step is a start of that program.
//
// It imports messages and persistence, and may be imported by cmd/internal.
package daemon
