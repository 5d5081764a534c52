// The built site at a port of loopback, as a plain web server gives it out, with gzip.
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { gzipSync } from 'node:zlib';

const TYPES = {
  '.css': 'text/css', '.html': 'text/html', '.js': 'text/javascript', '.json': 'application/json', '.png': 'image/png',
  '.svg': 'image/svg+xml', '.webp': 'image/webp',
};

/** The address, and what ends it. */
export async function serve(folder) {
  const server = createServer(async (request, response) => {
    const path = new URL(request.url, 'http://site').pathname;
    const body = await readFile(join(folder, path)).catch(() => null);
    const type = TYPES[extname(path)] ?? 'text/plain';
    const encoding = type.startsWith('image') ? {} : { 'content-encoding': 'gzip' };
    response.writeHead(body ? 200 : 404, { 'content-type': `${type}; charset=utf-8`, ...encoding });
    response.end(encoding['content-encoding'] ? gzipSync(body ?? '') : body);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return { url: `http://127.0.0.1:${server.address().port}`, end: () => { server.closeAllConnections(); server.close(); } };
}
