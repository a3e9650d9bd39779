package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/persistence"
)

// checkShape is the report of a check for scripts.
type checkShape struct {
	DataDir     string                   `json:"dataDir"`
	StoreID     string                   `json:"storeId"`
	Format      int                      `json:"format"`
	Generation  uint64                   `json:"generation"`
	Epoch       uint64                   `json:"epoch"`
	Commits     uint64                   `json:"commits"`
	Records     map[persistence.Kind]int `json:"records"`
	Former      int                      `json:"formerVersions"`
	Events      int                      `json:"events"`
	OutputLogs  int                      `json:"outputLogs"`
	OutputBytes uint64                   `json:"outputBytes"`
	TornLogs    int                      `json:"tornLogs"`
	BodyFiles   int                      `json:"bodyFiles"`
	BodyBytes   uint64                   `json:"bodyBytes"`
	Orphans     int                      `json:"orphans"`
	SetAside    int                      `json:"setAside"`
	Findings    []string                 `json:"findings"`
	Count       int                      `json:"count"` // of findings, of which the first hundred are named
}

func (a *app) checkCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look at every byte of a data directory while its orchestrator is stopped",
		Long: "Look at every byte of a data directory while its orchestrator is stopped: the files, every table, record, event,\n" +
			"log of output and body, and whether they fit together. Nothing in it is changed. It exits 1 where something is wrong.",
		Example: "  swampd check --data-dir /srv/swampd",
		Args:    wants(),
	}
	a.addDataDir(cmd.Flags(), &dataDir, "`DIR` to look at")
	a.addFormat(cmd.Flags())
	return a.command(cmd, func(_ *cobra.Command, _ []string, from settings) error {
		if dataDir == "" {
			return usagef("%s is needed: this user has no home directory", from.name("data-dir"))
		}
		report, err := a.host.Engine.Check(dataDir)
		if err != nil {
			return err
		}
		if err := a.printCheck(dataDir, report); err != nil {
			return err
		}
		if report.Wrong > 0 {
			return errFailed
		}
		return nil
	})
}

func (a *app) printCheck(dir string, r daemon.Report) error {
	if a.json() {
		findings := r.Findings
		if findings == nil {
			findings = []string{}
		}
		return json.NewEncoder(a.host.Stdout).Encode(checkShape{
			DataDir: dir, StoreID: r.Meta.StoreID, Format: r.Meta.Format, Generation: r.Meta.Generation, Epoch: r.Meta.Epoch,
			Commits: r.Meta.Head.Number, Records: r.Records, Former: r.Former, Events: r.Events, OutputLogs: r.OutputLogs,
			OutputBytes: r.OutputBytes, TornLogs: r.Torn, BodyFiles: r.BodyFiles, BodyBytes: r.BodyBytes, Orphans: r.Orphans, SetAside: r.SetAside, Findings: findings, Count: r.Wrong,
		})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: store %s, format %d, generation %d, boot %d, commit %d\n",
		dir, r.Meta.StoreID, r.Meta.Format, r.Meta.Generation, r.Meta.Epoch, r.Meta.Head.Number)
	t := table{columns: []string{"WHAT", "COUNT"}}
	for _, kind := range slices.Sorted(maps.Keys(r.Records)) {
		t.add(string(kind)+" records", fmt.Sprint(r.Records[kind]))
	}
	t.add("former versions", fmt.Sprint(r.Former))
	t.add("events", fmt.Sprint(r.Events))
	t.add("output logs", fmt.Sprintf("%d, %s", r.OutputLogs, sizeText(r.OutputBytes)))
	if r.Torn > 0 {
		t.add("torn output logs", fmt.Sprintf("%d, cut at the next write; nothing acknowledged is missing", r.Torn))
	}
	t.add("bodies in files", fmt.Sprintf("%d, %s", r.BodyFiles, sizeText(r.BodyBytes)))
	if r.Orphans > 0 {
		t.add("files of bodies without a record", fmt.Sprintf("%d, removed at the next start", r.Orphans))
	}
	if r.SetAside > 0 {
		t.add("set aside", fmt.Sprintf("%d, earlier: they could not be decoded", r.SetAside))
	}
	if err := t.write(&b, false); err != nil {
		return err
	}
	for _, finding := range r.Findings {
		fmt.Fprintln(&b, "wrong: "+oneLine(finding))
	}
	switch more := r.Wrong - len(r.Findings); {
	case r.Wrong == 0:
		fmt.Fprintln(&b, "nothing is wrong")
	case more > 0:
		fmt.Fprintf(&b, "and %d more\n", more)
		fallthrough
	default:
		fmt.Fprintf(&b, "%d wrong: restore a backup, or start swampd all the same: it sets aside what it cannot read\n", r.Wrong)
	}
	_, err := io.WriteString(a.host.Stdout, b.String())
	return err
}
