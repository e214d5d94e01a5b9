#!/usr/bin/env node
// Starts the binary of the package that fits this platform.
"use strict";
const { spawn } = require("node:child_process");

const name = `@alara-project/${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "alara.exe" : "alara";
let binary;
try {
  binary = require.resolve(`${name}/bin/${file}`);
} catch {
  console.error(
    `alara: the package ${name} is not installed. Either there is none for this platform, or packages that are optional ` +
      "were left out: install alara again, without --omit=optional.",
  );
  process.exit(2);
}
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
// An interrupt at the terminal reaches both, and the binary ends as it wants to. Who ends this process means the binary.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("error", (error) => {
  console.error(`alara: ${binary} can't be started: ${error.message}`);
  process.exit(2);
});
child.on("exit", (status, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(status);
  }
});
