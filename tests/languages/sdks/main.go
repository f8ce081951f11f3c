// Writes the SDK of a package in a folder, by the CLI's own generators: newer language hosts call the same functions
// for `pulumi package add`. Arguments: go, nodejs or python; the schema's file; the folder.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	gogen "github.com/pulumi/pulumi/pkg/v3/codegen/go"
	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

func main() {
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(language, schemaFile, folder string) error {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		return err
	}
	var spec schema.PackageSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	pkg, diagnostics, err := schema.BindSpec(spec, nil, schema.ValidationOptions{})
	if err != nil {
		return err
	}
	if diagnostics.HasErrors() {
		return diagnostics
	}
	pkg.SupportPack = true // as for `package add`
	files, err := generated(language, pkg)
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func generated(language string, pkg *schema.Package) (map[string][]byte, error) {
	switch language {
	case "go":
		return gogen.GeneratePackage("elastic-infra", pkg, nil)
	case "nodejs":
		return nodejs.GeneratePackage("elastic-infra", pkg, nil, nil, true, nil)
	case "python":
		return python.GeneratePackage("elastic-infra", pkg, nil, nil)
	}
	return nil, fmt.Errorf("no generator for %s", language)
}
