// Keeps a database open as the agent does. Reads SQL as a JSON string per line and writes one line of JSON for each.
import { createInterface } from 'node:readline';
import Database from 'libsql';

const database = new Database(process.argv[2]);
process.stdout.write('[]\n');
for await (const line of createInterface({ input: process.stdin })) {
  const sql = JSON.parse(line);
  let answer = [];
  try {
    if (/^(?:select|pragma)[^;]*$/i.test(sql)) answer = database.prepare(sql).all();
    else database.exec(sql);
  } catch (error) {
    answer = { error: error.code ?? error.message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
// libsql keeps the file open until its statements are collected, so exiting does not clean up as `close` does.
database.close();
