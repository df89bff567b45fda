// Passes requests on to a Colloquy server with a token: the conformance suite of MCP cannot send one. All other headers
// stay as they are, so that the server sees the Host and the Origin that the suite invents.
//   node tests/mcp-conformance-proxy.mjs http://127.0.0.1:8080 TOKEN
// Prints its port, and serves until its end.
import http from "node:http";

const [target, token] = process.argv.slice(2);
const { hostname, port } = new URL(target);

const proxy = http.createServer((request, response) => {
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  const options = { hostname, port, path: request.url, method: request.method, headers };
  const forwarded = http.request(options, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  forwarded.on("error", (error) => {
    if (response.headersSent) {
      response.destroy(error);
    } else {
      response.writeHead(502).end(String(error));
    }
  });
  // A client that hangs up ends the request to the server too.
  response.on("close", () => forwarded.destroy());
  request.pipe(forwarded);
});
proxy.listen(0, "127.0.0.1", () => console.log(proxy.address().port));
