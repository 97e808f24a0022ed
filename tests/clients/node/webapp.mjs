// A web app of Express whose sessions connect-redis keeps in Redis. Prints the port that it serves.
//
//   node webapp.mjs REDIS_PORT SECONDS_A_SESSION_LASTS

import { RedisStore } from "connect-redis";
import express from "express";
import session from "express-session";
import { createClient } from "redis";

const [port, seconds] = process.argv.slice(2).map(Number);
const client = createClient({ socket: { port, host: "127.0.0.1" } });
client.on("error", (error) => console.error(error));
await client.connect();

const app = express();
const store = new RedisStore({ client });
app.use(session({ store, secret: "x", resave: false, saveUninitialized: false, cookie: { maxAge: 1000 * seconds } }));
app.use(express.text({ type: () => true }));
app.post("/login", (request, response, next) =>
  request.session.regenerate((error) => {
    if (error) return next(error);
    request.session.name = request.body;
    response.send("welcome");
  }),
);
app.get("/me", (request, response) => {
  if (!request.session.name) return response.status(401).send("nobody");
  request.session.visits = (request.session.visits ?? 0) + 1;
  response.send(`${request.session.name} ${request.session.visits}`);
});
app.post("/logout", (request, response, next) => {
  request.session.destroy((error) => (error ? next(error) : response.send("goodbye")));
});
const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
