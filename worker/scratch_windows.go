package worker

import "os"

// scriptName ends as pwsh demands of a script.
const scriptName = ".swamp-script.ps1"

func openOutputs(path string) (*os.File, error) { return os.Open(path) }
