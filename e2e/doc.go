// Package e2e drives the three programs as their operators do: real processes, sockets on loopback, signals, exit codes,
// and kill -9. It knows nothing of how they are made.
//
// It holds tests only, behind the build tag e2e; `task e2e` runs them, and `task crash` runs TestCrash for ten minutes.
//
//	harness_main_test.go       builds the programs once
//	harness_wait_test.go       the one loop that waits
//	harness_process_test.go    a process and the lines it prints
//	harness_fleet_test.go      an orchestrator in a folder of its own, and what is connected to it
//	harness_client_test.go     what the command line and the HTTP verbs answer
//	harness_footprint_test.go  which processes of this machine belong to a fleet
//	harness_ledger_test.go     what steps write about themselves
//	harness_proxy_test.go      a network that cuts, stalls and goes silent
//
// A fleet lives below a folder of its own, which is also the home of all its processes: that is how one is found that
// got away from its parents, and why nothing outlives a test.
//
// Variables: E2E_RACE builds the programs with the race detector; E2E_STEPS (1000) is the number of short steps,
// E2E_LINES (100000) the lines of the long output, E2E_EPHEMERAL (60) the steps that each get a worker of their own,
// E2E_SIGNALS (80) those whose workers are stopped at random, by E2E_SEED, CRASH_TIME (10s) how long TestCrash goes on,
// and CRASH_SEED what it chooses by.
package e2e
