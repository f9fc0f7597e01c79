#!/usr/bin/env node
import { runProgram } from './main.ts';

await runProgram('svc');
