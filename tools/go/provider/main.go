// pulumi-resource-kubernetes, served from the provider's own Go module.
//
// The module lacks the two generated files that its own main embeds. The build lays the schema and the mapping that the
// module does carry over the names below (go build -overlay), so nothing of them is copied into this tree.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var terraformMapping []byte

func main() {
	provider.Serve("kubernetes", version.Version, schema, terraformMapping)
}
