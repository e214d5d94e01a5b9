# nix run github:alara-project/alara
{
  description = "Runs agents on local models, fully offline";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" "x86_64-darwin" ];
      package = pkgs: pkgs.rustPlatform.buildRustPackage {
        pname = "alara";
        version = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package.version;
        src = self;
        cargoLock.lockFile = ./Cargo.lock;
        buildType = "dist";
        buildFeatures = pkgs.lib.optional pkgs.stdenv.hostPlatform.isDarwin "metal";
        # They make sandboxes of namespaces, which one can't do inside of Nix's.
        doCheck = false;
        nativeBuildInputs = [ pkgs.installShellFiles ];
        postInstall = ''
          $out/bin/alara man . && installManPage *.1
          for shell in bash zsh fish; do
            $out/bin/alara completions $shell >alara.$shell
          done
          installShellCompletion alara.bash --zsh alara.zsh --fish alara.fish
        '';
        meta.mainProgram = "alara";
      };
    in
    {
      packages = nixpkgs.lib.genAttrs systems (system: {
        default = package nixpkgs.legacyPackages.${system};
      });
    };
}
