// Package engine is the orchestrator as one process: the listener, the actors, the journal, and the worker of its own,
// wired together. It holds no logic of the product.
//
// It may import all of the product. The mains of swampd and swamp import it, and hand it to cmd/internal/cli; that of
// swamp-worker does not, since every step that a worker runs is a start of that program.
package engine
