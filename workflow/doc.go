// Package workflow is the YAML language of workflows and the DAG of a run. It is pure: it does no I/O, reads no clock
// and starts no goroutine, so that the command line and the orchestrator give one answer about one file.
//
// Parse turns a source into a Plan in which names are resolved and inherited values are in their place, or into
// Diagnoses: everything that is wrong, each with its line and column. Progress follows one run through its plan: it
// is told which steps end and tells which become ready and which are skipped.
//
// # The YAML that is read
//
// The reader is our own and takes the part of YAML 1.2 that workflows use: maps and lists as blocks and in brackets
// (JSON included), plain and quoted text, '|' and '>' texts, comments, and one document. Anchors, aliases, merge
// keys, tags, '? ' keys, directives and tabs as indentation are refused with a sentence, and so is what YAML would
// read as something else than it looks like, such as a text in brackets that goes on in the next line. What it
// accepts it reads as YAML does; the tests compare it with another parser.
//
// It is our own for the sake of bad input. Its cost is linear in the source whatever that holds, its recursion is
// bounded, and it knows where everything stands. The parser that the tests compare it with takes 21 s for 64 KiB of
// empty lines below a '|', and 11 s for a map of 40,000 keys.
//
// Scalars are taken as they are written: the label `gpu: true` is "true" and `1.10` stays "1.10".
//
// The package imports messages only. Whoever runs or checks workflows may import it.
package workflow
