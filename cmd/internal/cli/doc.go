// Package cli is the command line of swampd, swamp-worker and swamp: flags and variables, wiring, rendering, exit
// codes. It holds no logic of the product.
//
// A command gets everything it knows of the machine from a [Host], so that tests run the command tree in their own
// process. What a command was asked for is resolved once: a flag goes before its variable, which goes before the
// default. Errors travel up unprinted; [Run] prints each once and turns it into an exit code in one place.
//
// The package may import messages, workflow, persistence and worker. An orchestrator comes from whoever has one:
//
//	func main() { os.Exit(cli.Main(cli.Swampd, engine.Engine{})) }
package cli
