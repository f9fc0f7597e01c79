#!/usr/bin/env node
import { main } from './main.ts';

// A reader that went away (`| head`) is no reason for a stack trace.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
process.exitCode = await main(process.argv.slice(2), 'svc-relay');
